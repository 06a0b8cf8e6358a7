"""Which of a few configurations is the fastest: they are run in turns, since a machine drifts between one minute and another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metabench.timing import Timing

from .pool import Pool


@dataclass(frozen=True)
class Comparison:
    """Configurations that were run in turns, in a fresh order each round, arguments restored before every run.

    Attributes:
        configurations: the first is what the others are compared to.
        timing: kernel seconds of each in each round; names are their places, "0", "1", ...
    """

    configurations: tuple[dict[str, Any], ...]
    timing: Timing

    @property
    def best(self) -> int:
        """The place of the one with the least median."""
        return min(range(len(self.configurations)), key=self.milliseconds)

    def milliseconds(self, place: int) -> float:
        """Median milliseconds of one run."""
        return self.timing.median(str(place)) * 1e3

    def speedup(self, place: int) -> tuple[float, float, float]:
        """How many times faster than the first: the median over rounds, and its quartiles."""
        return self.timing.ratio("0", to=str(place))


def compare(pool: Pool, configurations: Sequence[Mapping[str, Any]], rounds: int = 21) -> Comparison:
    """Run configurations in turns.

    Raises:
        evotune.measure.pool.WorkerDied: one of them failed.
    """
    seconds = np.array(pool.compare(configurations, rounds)) / 1e3
    names = tuple(str(place) for place in range(len(configurations)))
    return Comparison(tuple(dict(c) for c in configurations), Timing(names, seconds))
