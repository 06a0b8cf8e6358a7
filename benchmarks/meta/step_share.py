"""What share of a training step `opt.step` is: a GPT of 10 M parameters on the CPU, one thread, CPU time, in one interleaved run.

    python benchmarks/meta/step_share.py [--rounds 3] [--out benchmarks/meta/step_share.json]

In every round a forward and backward pass of each batch size and one step of each optimizer and backend take their turn; a
share is step / (passes + step) of the same round, so a slow moment of the machine is in both. A step's time does not depend on
the batch, the share does. Learning rates are 0, so that the model stays what it is; meta-weights are random, which cost as much.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lopt import tasks
from lopt.registry import OPTIMIZERS, create
from lopt.train.optimizers import GROUPS
from metabench.files import write_json
from metabench.provenance import stamp

CONTEXT, VOCAB = 128, 8192
BATCHES = (1, 8)  # x CONTEXT tokens
BACKENDS = ("cpu", "reference")


def contenders(model: torch.nn.Module) -> dict[str, Callable[[], object]]:
    """Name, backend -> one step on the model's gradients."""
    found: dict[str, Callable[[], object]] = {
        "adamw, foreach": torch.optim.AdamW(model.parameters(), lr=0.0, foreach=True).step,
        "adamw, fused": torch.optim.AdamW(model.parameters(), lr=0.0, fused=True).step,
    }
    for name in OPTIMIZERS:
        extra = {"num_steps": 1000} if name == "velo" else {}
        for backend in BACKENDS:
            groups = GROUPS[name](model) if name in GROUPS else model.parameters()
            optimizer = create(name, groups, lr=0.0, weights="random:0", backend=backend, **extra)
            found[f"{name}, {backend}"] = functools.partial(optimizer.step, loss=1.0)
    return found


def passes(model: torch.nn.Module, task: tasks.TrainingTask, batch: int) -> Callable[[], object]:
    """Forward and backward of one batch."""
    x, y = task.source.sample(batch, torch.Generator().manual_seed(0))

    def run() -> None:
        model.zero_grad()
        task.loss(model, x, y).backward()

    return run


def rounds_of(work: dict[str, Callable[[], object]], rounds: int) -> Iterator[dict[str, list[float]]]:
    """CPU seconds of each, after every round but the first, in which state is made and kernels are built."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(rounds + 1):
        for name, call in work.items():
            begin = time.process_time()
            call()
            if round_:
                times[name].append(time.process_time() - begin)
        if round_:
            yield times


def middle(values: Sequence[float], digits: int) -> list[float]:
    """Median and quartiles."""
    return [round(float(x), digits) for x in np.percentile(values, (50, 25, 75))]


def report(times: Mapping[str, list[float]], model: torch.nn.Module, rounds: int) -> dict[str, Any]:
    """What is written down."""
    trained = {b: times[f"passes, batch {b}"] for b in BATCHES}

    def share(name: str, batch: int) -> list[float]:
        return middle([s / (p + s) for s, p in zip(times[name], trained[batch], strict=True)], 4)

    steps = [name for name in times if not name.startswith("passes")]
    return {"command": f"python benchmarks/meta/step_share.py --rounds {rounds}", "stamp": stamp(),
            "parameters": sum(p.numel() for p in model.parameters()), "tensors": len(list(model.parameters())),
            "context": CONTEXT, "vocab": VOCAB, "threads": 1, "rounds": len(trained[BATCHES[0]]),
            "unit": "median, lower and upper quartile over rounds; CPU milliseconds; share of passes + step",
            "milliseconds": {name: middle([1e3 * t for t in x], 1) for name, x in times.items()},
            "share": {name: {f"batch {b}": share(name, b) for b in BATCHES} for name in steps}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    task = tasks.make_task("gpt", size="10m", vocab=VOCAB, context=CONTEXT)
    model = task.make()
    train = {f"passes, batch {b}": passes(model, task, b) for b in BATCHES}
    for times in rounds_of({**train, **contenders(model)}, options.rounds):
        write_json(options.out, report(times, model, options.rounds))


if __name__ == "__main__":
    main()
