"""Which snapshot, of which meta-seed: the one that does best on the validation tasks. The held-out tasks are not looked at.

    python -m lopt.metatrain.select RUN [RUN ...]

A score is the mean over tasks and the four measures (final and mean loss at 200 and at 1,000 steps) of log(loss / first loss +
FLOOR): lower is better. All snapshots run side by side on the same data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .checkpoint import SNAPSHOTS, load
from .evaluate import curves, learned, measures
from .frozen import frozen
from .lane import FLOOR
from .tasks import Task

HORIZONS = (200, 1000)


def scores(thetas: Tensor, tasks: Sequence[Task], horizons: Sequence[int] = HORIZONS, seeds: int = 1) -> Tensor:
    """(k, tasks) of meta-weights (k, D)."""
    rows = []
    for number, task in enumerate(tasks):
        found = curves(task, number, seeds, len(thetas), max(horizons), learned(thetas))
        first = found[:, :, 0].mean().item()
        each = [torch.tensor(list(measures(curve, horizons).values())) for curve in found]
        rows.append(torch.stack([torch.log(x / first + FLOOR).mean() for x in each]))
    return torch.stack(rows, 1)


def snapshots(runs: Sequence[Path]) -> tuple[list[Path], Tensor]:
    """Every snapshot of the runs, and their meta-weights (k, D)."""
    files = [file for run in runs for file in sorted((Path(run) / SNAPSHOTS).glob("*.pt"))]
    if not files:
        raise ValueError(f"no snapshots in {', '.join(map(str, runs))}")
    return files, torch.stack([load(file) for file in files])


def select(runs: Sequence[Path], seeds: int = 1) -> list[tuple[Path, float]]:
    """Snapshots with their scores on the validation tasks, the best first."""
    files, thetas = snapshots(runs)
    found = scores(thetas, frozen("validation"), seeds=seeds).mean(1).tolist()
    return sorted(zip(files, found, strict=True), key=lambda pair: pair[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for file, score in select([Path(name) for name in sys.argv[1:]]):
        sys.stdout.write(f"{score:.4f}  {file}\n")
