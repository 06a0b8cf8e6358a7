"""Parameter-steps a second of meta-training on one core, in CPU time, in one interleaved run.

    python benchmarks/meta/throughput.py [--jax PYTHON SOURCE] [--out benchmarks/meta/throughput.json]

The update alone: batched, in C++ and in plain PyTorch, and mapped by `torch.func.vmap` over `small_fc_step` (the simple way). And
whole truncations of a lane (task gradients, update, bookkeeping), with the update in C++ and in plain PyTorch. `cpp_by_pytorch`
is the ratio of the two within each round. With `--jax`, the JAX reference package takes its turns in the same rounds, in a
process of its own: PYTHON is an interpreter that has jax, flax, dm-haiku, gin-config, chex, absl-py and optax, SOURCE a
checkout of google/learned_optimization. Its truncation gets batches that were made beforehand and a plain loss; ours draws
them, and has the reparametrisation, the meta-loss and the guard against losses that blow up in it.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lopt.features import Accumulators
from lopt.metatrain import batched, full
from lopt.metatrain.lane import Lane, Unroll
from lopt.metatrain.layout import Layout
from lopt.metatrain.meta_weights import like_adam
from lopt.metatrain.tasks.mlp import MLPTask
from lopt.optim.small_fc import small_fc_step
from metabench.files import write_json
from metabench.provenance import stamp

SIZES = {
    500: MLPTask(inputs=16, width=18, depth=1, outputs=10),
    2500: MLPTask(inputs=16, width=36, depth=2, outputs=14),
}
BACKENDS = {"C++": "cpu", "plain PyTorch": "reference"}
PARTICLES, TRUNCATION, ROUNDS = 32, 20, 9  # as in jax_reference.py


def batched_step(layout: Layout, backend: str) -> Callable[[], object]:
    n = PARTICLES
    meta, scratch = batched.meta_batch(like_adam(0).repeat(n, 1)), batched.Scratch(n, layout, (32, 32), backend)
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


def truncation(size: int, backend: str) -> tuple[Callable[[], object], int]:
    unroll = Unroll(
        method="pes", truncation=TRUNCATION, shortest=10**6, longest=10**6, elements=10**9, most_pairs=PARTICLES // 2
    )
    lane = Lane(SIZES[size], 10**6, unroll, 0)
    lane.scratch = batched.Scratch(PARTICLES, lane.layout, unroll.hidden, backend)
    theta = like_adam(0)
    return lambda: lane.advance(theta), lane.steps


def timed(call: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


class Jax:
    """The reference package in a process of its own, see `jax_reference.py`."""

    def __init__(self, python: str, source: str) -> None:
        script = str(Path(__file__).with_name("jax_reference.py"))
        self.process = subprocess.Popen(
            [python, script, source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def seconds(self, name: str, size: int) -> float:
        """CPU seconds of one call there."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{name} {size}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the JAX process ended: run benchmarks/meta/jax_reference.py by hand to see why")
        return float(answer)


def measure(size: int, jax: Jax | None) -> dict[str, Any]:
    """Millions of parameter-steps a second: median and quartiles over rounds in which each took its turn; ratios of two."""
    layout = Layout(SIZES[size].shapes)
    one = PARTICLES * layout.size
    work: dict[str, tuple[Callable[[], float], int]] = {}
    for name, backend in BACKENDS.items():
        whole, steps = truncation(size, backend)
        work[f"whole truncation, {name}"] = functools.partial(timed, whole), steps
        work[f"update, batched, {name}"] = functools.partial(timed, batched_step(layout, backend)), one
    work["update, vmap over small_fc_step"] = functools.partial(timed, mapped_step(layout)), one
    if jax is not None:
        work["update, JAX reference"] = (functools.partial(jax.seconds, "update", size), one)
        work["whole truncation, JAX reference"] = (functools.partial(jax.seconds, "truncation", size), steps)
    rates: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(ROUNDS + 1):
        for name, (seconds, amount) in work.items():
            found = amount / seconds() / 1e6
            if round_:
                rates[name].append(found)
    ratios = {
        part: summary([a / b for a, b in zip(*(rates[f"{part}, {name}"] for name in BACKENDS), strict=True)])
        for part in ("whole truncation", "update, batched")
    }
    return {
        "parameters": layout.size,
        **{name: summary(own) for name, own in rates.items()},
        "cpp_by_pytorch": ratios,
    }


def summary(values: list[float]) -> dict[str, Any]:
    q = [round(x, 2) for x in statistics.quantiles(values, n=4)]
    return {"median": q[1], "quartiles": [q[0], q[2]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", nargs=2, metavar=("PYTHON", "SOURCE"))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    jax = Jax(*options.jax) if options.jax else None
    found = {str(size): measure(size, jax) for size in SIZES}
    write_json(options.out, {
        "command": "python benchmarks/meta/throughput.py" + (" --jax PYTHON SOURCE" if jax else ""), "stamp": stamp(),
        "particles": PARTICLES, "rounds": ROUNDS, "truncation": TRUNCATION,
        "unit": "million parameter-steps a second of CPU time, one thread", "results": found})  # fmt: skip


if __name__ == "__main__":
    main()
