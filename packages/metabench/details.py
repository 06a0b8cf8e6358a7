"""What a file says on each evaluation besides its value and how it ended, column by column, so that nothing is lost.

Columns rather than one dict per configuration: a recording of 11,130 configurations with 32 kernel runs each is then three
arrays, which load in milliseconds, and what a configuration cost is a sum over columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

PARTS = ("compile", "verification", "benchmark", "framework", "strategy")
"""What an evaluation's time goes to. `benchmark` is the wall time of all kernel runs; the runs themselves are `runs`."""


@dataclass(frozen=True)
class Details:
    """The parts of every evaluation's cost, its single kernel runs, and what else was written down.

    Attributes:
        parts: {name of `PARTS`: float64 (n,), milliseconds, NaN where the file has none}.
        runs: float64 (k,), milliseconds, the kernel runs of all configurations, one configuration after the other.
        counts: int64 (n,), how many runs each configuration has; -1 where the file has no list of runs.
        timestamps: (n,) texts, "" where the file has none.
        extra: {row: {key: value}}, whatever is no number: messages, lists, booleans.
    """

    parts: dict[str, np.ndarray]
    runs: np.ndarray
    counts: np.ndarray
    timestamps: np.ndarray
    extra: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        parts: Sequence[Mapping[str, float]],
        runs: Sequence[Sequence[float] | None],
        timestamps: Sequence[str | None],
        extra: Sequence[Mapping[str, Any]],
    ) -> Details:
        """From one value per configuration, in row order."""
        columns = {name: np.array([p.get(name, np.nan) for p in parts], dtype=np.float64) for name in PARTS}
        counts = np.array([-1 if r is None else len(r) for r in runs], dtype=np.int64)
        flat = np.array([t for r in runs if r for t in r], dtype=np.float64)
        stamps = np.array([t or "" for t in timestamps], dtype=str)
        return cls(columns, flat, counts, stamps, {row: dict(e) for row, e in enumerate(extra) if e})

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(np.maximum(self.counts, 0))])

    def runs_of(self, row: int) -> list[float] | None:
        """The kernel runs of one configuration, milliseconds; None if the file has no list of them."""
        return None if self.counts[row] < 0 else self.runs[self._ends[row] : self._ends[row + 1]].tolist()

    @cached_property
    def run_seconds(self) -> np.ndarray:
        """All kernel runs of each configuration together, float64 (n,) seconds; what is NaN or negative counts as nothing."""
        # Summed one after the other, as Python does: a pairwise sum differs in the last bit from what others compute.
        known = np.where(self.runs >= 0, self.runs, 0.0)
        ends = self._ends
        return np.array([sum(known[a:b].tolist()) for a, b in itertools.pairwise(ends)]) / 1e3

    def seconds(self, part: str) -> np.ndarray:
        """One part of the cost, float64 (n,) seconds; what is missing, NaN or negative counts as nothing."""
        column = self.parts[part]
        return np.where(column >= 0, column, 0.0) / 1e3

    def cost(self) -> np.ndarray:
        """Seconds of each evaluation, float64 (n,), NaN where no part is known.

        The single runs and all that surrounded them. `benchmark` is left out: it is the same runs, seen from outside.
        """
        names = [name for name in PARTS if name != "benchmark"]
        total = sum((self.seconds(name) for name in names), self.run_seconds)
        known = np.any([self.parts[name] >= 0 for name in names], axis=0) | (self.counts > 0)
        return np.where(known, total, np.nan)
