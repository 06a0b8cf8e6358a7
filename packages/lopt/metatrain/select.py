"""Which snapshot, of which meta-seed: the one that does best on the validation tasks. The held-out tasks are not looked at.

    python -m lopt.metatrain.select RUN [RUN ...]

A score is the mean over tasks and the four measures (final and mean loss at 200 and at 1,000 steps; at 200 and 500 on the wide
tasks) of log(loss / first loss + FLOOR): lower is better. Snapshots are ordered by their standing, in which every task counts
alike. All snapshots of a run go side by side on the same data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..models.small_fc import UNSCALED, StepScales
from .checkpoint import CHECKPOINT, SNAPSHOTS, load
from .checkpoint import scales as scales_of
from .evaluate import curves, learned, measures
from .frozen import frozen
from .lane import FLOOR
from .tasks import Task

HORIZONS = {"validation": (200, 1000), "wide": (200, 500)}


def scores(
    thetas: Tensor, tasks: Sequence[Task], horizons: Sequence[int] = HORIZONS["validation"], seeds: int = 1,
    scales: StepScales = UNSCALED,
) -> Tensor:  # fmt: skip
    """(k, tasks) of meta-weights (k, D)."""
    rows = []
    for number, task in enumerate(tasks):
        make = learned(thetas, scales=scales)
        found = curves(task, number, seeds, len(thetas), max(horizons), make)
        first = found[:, :, 0].mean().item()
        each = [torch.tensor(list(measures(curve, horizons).values())) for curve in found]
        rows.append(torch.stack([torch.log(x / first + FLOOR).mean() for x in each]))
    return torch.stack(rows, 1)


def snapshots(run: Path) -> tuple[list[Path], Tensor, StepScales]:
    """Every snapshot of a run, their meta-weights (k, D), and the scales of steps that they were trained with."""
    files = sorted((Path(run) / SNAPSHOTS).glob("*.pt"))
    if not files:
        raise ValueError(f"no snapshots in {run}")
    return files, torch.stack([load(file) for file in files]), scales_of(load(Path(run) / CHECKPOINT))


def select(runs: Sequence[Path], seeds: int = 1) -> list[tuple[Path, dict[str, float]]]:
    """Snapshots with their mean scores on the two splits and their standing over all tasks, the best standing first."""
    files, columns = [], []
    for run in runs:
        own, thetas, scales = snapshots(run)
        files += own
        columns.append([scores(thetas, frozen(name), h, seeds, scales) for name, h in HORIZONS.items()])
    splits = [torch.cat(parts) for parts in zip(*columns, strict=True)]
    means = {name: x.mean(1) for name, x in zip(HORIZONS, splits, strict=True)}
    means["standing"] = standing(torch.cat(splits, 1))
    found = [(file, {name: x[i].item() for name, x in means.items()}) for i, file in enumerate(files)]
    return sorted(found, key=lambda pair: pair[1]["standing"])


def standing(scores: Tensor) -> Tensor:
    """(k,) the mean over tasks of scores (k, tasks) in deviations from the task's mean over all k.

    The loss of text ends at its entropy and that of digits at nothing, so plain means of logarithms would be about digits.
    """
    return ((scores - scores.mean(0)) / (scores.std(0, correction=0) + 1e-6)).mean(1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for file, means in select([Path(name) for name in sys.argv[1:]]):
        sys.stdout.write("  ".join(f"{name} {x:.4f}" for name, x in means.items()) + f"  {file}\n")
