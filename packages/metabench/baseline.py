"""The baseline that P is measured against: random search on a recording, and the budget that follows from it.

S(t) is the mean best-so-far curve of many random permutations of all configurations, each configuration at its own recorded cost.
It is exact for those permutations: a best-so-far curve is a step function with about ln(n) steps, so S is kept as the sorted list
of all their steps, and no time grid is involved until the end T is known.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from . import folders
from .errors import UserError
from .files import write_atomic
from .recording import Recording

PERMUTATIONS = 20_000
POINTS = 1_000
CUTOFF = 0.95  # T is when random search is this much of the way from the median to the optimum
_SEED = 20_251_129
_CHUNK = 2_000_000  # configurations held at a time
_VERSION = "1"


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


def _store(path: folders.Path, array: np.ndarray) -> None:
    import io

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
    """How long prefixes must be to see S reach the target: some times the expected wait for the first good configuration."""
    good = int((losses <= target).sum())
    return min(len(losses), 8 * (len(losses) + 1) // (good + 1) + 50)


def _steps(
    losses: np.ndarray, costs: np.ndarray, median: float, permutations: int, length: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """All steps of all best-so-far curves over prefixes of `length`.

    Returns:
        Times at which the mean curve steps, ascending; its level from there on; the time up to which prefixes are long enough.
    """
    rng = np.random.default_rng(_SEED)
    n = len(losses)
    rows = np.tile(np.arange(n, dtype=np.int32), (max(1, min(permutations, _CHUNK // n)), 1))
    times, drops, exact_until, done = [], [], np.inf, 0
    while done < permutations:
        rows = rows[: permutations - done]
        rng.permuted(rows, axis=1, out=rows)
        prefix = rows[:, :length]
        clock = np.cumsum(costs[prefix], axis=1)
        best = np.minimum.accumulate(losses[prefix], axis=1)
        best[np.isinf(best)] = median  # before its first valid configuration, a run holds the median
        step = np.diff(best, axis=1, prepend=median)
        where = np.nonzero(step)
        times.append(clock[where])
        drops.append(step[where])
        exact_until = min(exact_until, float(clock[:, -1].min()))
        done += len(rows)
    at, step = np.concatenate(times), np.concatenate(drops)
    order = np.argsort(at, kind="stable")
    return at[order], median + np.cumsum(step[order]) / permutations, exact_until
