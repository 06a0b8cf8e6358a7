"""A/B timing: interleaved, warmed up, medians, ratios.

On a shared machine the clock drifts by tens of per cent within minutes, so a claim is a ratio of things that were run in turns,
and its interval comes from the rounds: in each round every candidate runs once, and the ratio is formed within the round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .errors import UserError

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """Seconds of each candidate in each round.

    Attributes:
        names: the candidates; the first is what ratios are taken to.
        seconds: float64 (candidates, rounds).
    """

    names: tuple[str, ...]
    seconds: np.ndarray

    def median(self, name: str) -> float:
        """Median seconds of a candidate."""
        return float(np.median(self.seconds[self.names.index(name)]))

    def ratio(self, name: str, to: str | None = None) -> tuple[float, float, float]:
        """Median over rounds of this candidate's time divided by the other's, with its quartiles: (median, low, high)."""
        other = self.seconds[self.names.index(to or self.names[0])]
        low, middle, high = np.percentile(self.seconds[self.names.index(name)] / other, [25, 50, 75])
        return float(middle), float(low), float(high)


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int = 11,
    warmup: int = 2,
    clock: Clock = time.perf_counter,
    seed: int = 0,
) -> Timing:
    """Time some callables in turns, in a fresh random order each round.

    Args:
        clock: seconds; `time.process_time` to leave out what other processes take.

    Raises:
        UserError: no candidate or no round.
    """
    if not candidates or rounds < 1:
        raise UserError("timing needs at least one candidate and one round")
    names = tuple(candidates)
    for call in candidates.values():
        for _ in range(warmup):
            call()
    order, shuffle = list(range(len(names))), random.Random(seed).shuffle
    seconds = np.empty((len(names), rounds))
    for r in range(rounds):
        shuffle(order)
        for i in order:
            started = clock()
            candidates[names[i]]()
            seconds[i, r] = clock() - started
    return Timing(names, seconds)
