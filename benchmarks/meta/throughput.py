"""Parameter-steps a second of meta-training on one core, in CPU time, in one interleaved run.

    python benchmarks/meta/throughput.py > benchmarks/meta/throughput.json

The update alone, batched here and mapped by `torch.func.vmap` over `small_fc_step` (the simple way); and whole truncations
of a lane: task gradients, update, bookkeeping.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from lopt.features import Accumulators
from lopt.metatrain import batched, full
from lopt.metatrain.lane import Lane, Unroll
from lopt.metatrain.layout import Layout
from lopt.metatrain.meta_weights import like_adam
from lopt.metatrain.tasks.mlp import MLPTask
from lopt.optim.small_fc import small_fc_step
from metabench.provenance import stamp

SIZES = {
    500: MLPTask(inputs=16, width=18, depth=1, outputs=10),
    2500: MLPTask(inputs=16, width=36, depth=2, outputs=14),
}
PARTICLES, ROUNDS = 32, 9


def batched_step(layout: Layout) -> Callable[[], object]:
    n = PARTICLES
    meta, scratch = batched.meta_batch(like_adam(0).repeat(n, 1)), batched.Scratch(n, layout, (32, 32))
    state, rows, g = batched.initial_state(layout, n), torch.randn(n, layout.size), 0.01 * torch.randn(n, layout.size)
    return lambda: batched.step_(rows, g, state, meta, layout, scratch)


def mapped_step(layout: Layout) -> Callable[[], object]:
    """`small_fc_step` tensor by tensor, mapped over particles with meta-weights of their own."""
    n = PARTICLES
    thetas, t = like_adam(0).repeat(n, 1), torch.zeros(n)
    jobs = []
    for piece in layout.pieces:
        shape = piece.shape
        p, g, m, v = (torch.randn(n, *k, *shape).abs() for k in ((), (), (3,), ()))
        if piece.axes is None:
            moments = [torch.rand(n, 3, *shape)]
        else:
            sides = ([1 if i == axis else k for i, k in enumerate(shape)] for axis in (piece.axes.r, piece.axes.c))
            moments = [torch.rand(n, 3, *side) for side in sides]

        def one(theta, p, g, m, v, t, *x, axes=piece.axes):
            mlp, decays = full.weights_of(theta, (32, 32))
            a = Accumulators(m, v, None, None, x[0]) if axes is None else Accumulators(m, v, x[0], x[1], None)
            return small_fc_step(p, g, a, t, mlp, decays, axes)[0]

        jobs.append((torch.func.vmap(one), (thetas, p, g, m, v, t, *moments)))
    return lambda: [job(*arguments) for job, arguments in jobs]


def truncation(size: int) -> tuple[Callable[[], object], int]:
    lane = Lane(
        SIZES[size], 10**6, Unroll(method="pes", shortest=10**6, longest=10**6, elements=10**9, most_pairs=16), 0
    )
    theta = like_adam(0)
    return lambda: lane.advance(theta), lane.steps


def measure(size: int) -> dict[str, float]:
    """Millions of parameter-steps a second, medians over rounds in which each took its turn."""
    layout = Layout(SIZES[size].shapes)
    whole, steps = truncation(size)
    work = {"update, batched": (batched_step(layout), PARTICLES * layout.size),
            "update, vmap over small_fc_step": (mapped_step(layout), PARTICLES * layout.size),
            "whole truncation": (whole, steps)}  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(ROUNDS + 1):
        for name, (call, amount) in work.items():
            begin = time.process_time()
            call()
            if round_:
                times[name].append(amount / (time.process_time() - begin) / 1e6)
    return {"parameters": layout.size, **{name: round(statistics.median(x), 2) for name, x in times.items()}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {str(size): measure(size) for size in SIZES}
    head = {
        "command": "python benchmarks/meta/throughput.py",
        "stamp": stamp(),
        "particles": PARTICLES,
        "rounds": ROUNDS,
    }
    unit = "million parameter-steps a second of CPU time, one thread"
    json.dump({**head, "unit": unit, "results": found}, sys.stdout, indent=1)
    sys.stdout.write("\n")
