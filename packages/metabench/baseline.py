"""The baseline that P is measured against: random search on a recording, and the budget that follows from it.

S(t) is the mean best-so-far curve of many random permutations of all configurations, each configuration at its own recorded cost.
It is exact for those permutations: a best-so-far curve is a step function with about ln(n) steps, so S is kept as the sorted list
of all their steps, and no time grid is involved until the end T is known.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import folders
from .errors import UserError
from .files import write_atomic
from .recording import Recording

PERMUTATIONS = 20_000
POINTS = 1_000
CUTOFF = 0.95  # T is when random search is this much of the way from the median to the optimum
_SEED = 20_251_129
_CHUNK = 200_000  # configurations held at a time: what fits the processor's cache
_CHUNK_OF_WHOLE = (
    2_000_000  # the same for whole permutations: the draws depend on it, and published scores on the draws
)
_VERSION = "2"


@dataclass(frozen=True)
class Baseline:
    """Random search on one recording, on the grid that scores are taken on.

    Attributes:
        grid: float64 (1000,), simulated seconds, equally spaced from the mean cost of one evaluation to T = `end`.
        curve: float64 (1000,), S at the grid: expected best loss of random search.
        median, optimum: of the valid losses (lower is better, also where the objective is maximised).
        evaluations: T in units of the mean cost.
    """

    grid: np.ndarray
    curve: np.ndarray
    median: float
    optimum: float

    @property
    def end(self) -> float:
        """T, the budget, in simulated seconds."""
        return float(self.grid[-1])

    @property
    def evaluations(self) -> float:
        """T divided by the mean cost of an evaluation."""
        return float(self.grid[-1] / self.grid[0])


def baseline(recording: Recording, permutations: int = PERMUTATIONS) -> Baseline:
    """The baseline of a recording; computed once, then read from the user's cache.

    Raises:
        UserError: all valid configurations are equally good, so that no search can be better than another.
    """
    path = folders.cache() / "baselines" / f"{_fingerprint(recording, permutations)}.npy"
    losses = recording.losses
    valid = losses[np.isfinite(losses)]
    median, optimum = float(np.median(valid)), float(valid.min())
    if median <= optimum:
        raise UserError(f"{recording.name}: at least half of the valid configurations are optimal; nothing to score")
    try:
        grid, curve = np.load(path)
    except (OSError, ValueError):
        grid, curve = _simulate(losses, recording.costs, median, optimum, permutations)
        _store(path, np.stack([grid, curve]))
    return Baseline(grid, curve, median, optimum)


def _fingerprint(recording: Recording, permutations: int) -> str:
    digest = hashlib.sha256(f"{_VERSION} {permutations}".encode())
    digest.update(np.ascontiguousarray(recording.losses).tobytes())
    digest.update(np.ascontiguousarray(recording.costs).tobytes())
    return digest.hexdigest()[:24]


def _store(path: Path, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array)
    try:
        write_atomic(path, buffer.getvalue())
    except OSError:  # a read-only or full disk costs some seconds next time, nothing more
        return


def _simulate(
    losses: np.ndarray, costs: np.ndarray, median: float, optimum: float, permutations: int
) -> tuple[np.ndarray, np.ndarray]:
    """(grid, S at the grid)."""
    mean_cost, whole = float(costs.mean()), float(costs.sum())
    target = optimum + (median - optimum) * (1 - CUTOFF)
    length = _first_guess(losses, target)
    while True:
        times, levels, exact_until = _steps(losses, costs, median, permutations, length)
        reached = np.flatnonzero(levels <= target)
        end = float(times[reached[0]]) if len(reached) else whole
        end = min(max(end, 2 * mean_cost), whole)
        if end <= exact_until or length == len(losses):
            break
        length = min(2 * length, len(losses))
    grid = np.linspace(min(mean_cost, end / 2), end, POINTS)
    place = np.searchsorted(times, grid, side="right")
    return grid, np.concatenate([[median], levels])[place]


def _first_guess(losses: np.ndarray, target: float) -> int:
    """How long prefixes must be to see S reach the target: what calculated random search says, and some more."""
    n, good = len(losses), int((losses <= target).sum())
    expected = n / (good + 1)
    return min(n, int(1.1 * expected + 10 * np.sqrt(expected)) + 30)


def _steps(
    losses: np.ndarray, costs: np.ndarray, median: float, permutations: int, length: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """All steps of all best-so-far curves over prefixes of `length`.

    Returns:
        Times at which the mean curve steps, ascending; its level from there on; the time up to which prefixes are long enough.
    """
    rng = np.random.default_rng(_SEED)
    n = len(losses)
    draw, held = (_whole_permutations, _CHUNK_OF_WHOLE) if 2 * length > n else (_prefixes, _CHUNK)
    chunk = max(1, min(permutations, held // n))
    ranks, levels = _ranked(losses, median)
    times, drops, exact_until = [], [], np.inf
    for prefix, first in draw(rng, n, length, permutations, chunk):
        clock = costs.take(prefix, mode="clip")  # "clip": no check of indices that are right
        clock *= first
        np.cumsum(clock, axis=1, out=clock)
        best = np.minimum.accumulate(ranks.take(prefix, mode="clip"), axis=1)
        where = np.nonzero(np.diff(best, axis=1, prepend=n) < 0)  # about ln(length) in each row, the first always
        level = levels[best[where]]
        step = np.diff(level, prepend=median)
        step[where[1] == 0] = level[where[1] == 0] - median
        times.append(clock[where][step != 0])
        drops.append(step[step != 0])
        exact_until = min(exact_until, float(clock[:, -1].min()))
    at, step = np.concatenate(times), np.concatenate(drops)
    order = np.argsort(at, kind="stable")
    return at[order], median + np.cumsum(step[order]) / permutations, exact_until


def _ranked(losses: np.ndarray, median: float) -> tuple[np.ndarray, np.ndarray]:
    """(rank of each row, loss of each rank): the best so far is found among small integers. A failure's loss is the median,
    which is what a run holds before its first valid configuration."""
    order = np.argsort(losses, kind="stable")
    ranks = np.empty(len(losses), dtype=np.int32)
    ranks[order] = np.arange(len(losses), dtype=np.int32)
    return ranks, np.where(np.isinf(losses[order]), median, losses[order])


def _whole_permutations(
    rng: np.random.Generator, n: int, length: int, permutations: int, chunk: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, all True): prefixes of permutations, int32 (chunk, length)."""
    rows = np.tile(np.arange(n, dtype=np.int32), (chunk, 1))
    for start in range(0, permutations, chunk):
        rows = rows[: permutations - start]
        rng.permuted(rows, axis=1, out=rows)
        yield rows[:, :length], np.ones((len(rows), length), dtype=bool)


def _prefixes(
    rng: np.random.Generator, n: int, length: int, permutations: int, chunk: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, whether it is the row's first time): independent draws, int32 (chunk, k).

    Draws with replacement are a random permutation once the repeats are left out, and here a repeat changes nothing: it costs
    nothing and finds nothing new. So nothing needs to be shuffled beyond the prefix.
    """
    k = int(np.ceil(n * np.log(n / (n - length))))
    seen = np.empty((chunk, n), dtype=np.int32)
    order = np.arange(k, dtype=np.int32)
    for start in range(0, permutations, chunk):
        count = min(chunk, permutations - start)
        rows = rng.integers(n, size=(count, k), dtype=np.int32)
        flat = rows + n * np.arange(count)[:, None]
        # Written from the last draw to the first, each row keeps its first draw's place. (Repeated indices: the last one holds.)
        seen.reshape(-1)[flat[:, ::-1].copy()] = order[::-1]
        yield rows, seen.take(flat, mode="clip") == order
