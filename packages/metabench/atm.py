"""The estimator `atm`: P as autotuning_methodology 1.1.0 computes it, seeded, for comparison with published numbers.

Docs: docs/scoring.md says where and why it differs from `direct`. The formulas follow the package, rounding for rounding:

    target(p) = optimum + (median - optimum)(1 - p)      start p = 0.01, end p = 0.95
    i(p)      = first index from the worst at which the target is reached
    m(p)      = ceil(i / (N + 1 - i))                    evaluations that calculated random search needs
    time axis = 1000 points from m(0.01) tau to m(0.95) tau, tau the median cost of an evaluation
    P         = mean over the axis of (F - B) / (optimum - B)

B is calculated random search (`baseline`), F a bagged isotonic regression through the points of all runs (`curve`).

Two clocks run. The budget's is Kernel Tuner's simulation mode: compilation, verification and benchmark time of new
configurations, up to 1.1 times the end of the axis; a revisit is free. The score's clock charges single kernel runs instead of
benchmark time, and charges them again for every revisit, because the package sums the list of runs that Kernel Tuner leaves in
a revisited result. Both leave out the wall clock of the scoring machine, which the package adds and nobody can repeat.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .bootstrap import Estimate
from .errors import UserError
from .recording import Recording
from .replay import Limits, Session, Trace

POINTS = 1_000
START, END = 0.01, 0.95
OVERRUN = 1.1  # the tuner is given a tenth more time than the axis is long
CALL_SECONDS = 1e-4
"""What a call costs the budget besides the evaluation: Kernel Tuner's own time per call, in place of its wall clock."""
_RESAMPLES = 2_000
_BEYOND = 1.5  # the margin in which points count ends at 1.35 times the axis at the latest


@dataclass(frozen=True)
class Axis:
    """Time axis, baseline and answers of one recording under `atm`.

    Attributes:
        grid: float64 (1000,), seconds from t_start to t_end.
        curve: float64 (1000,), B: calculated random search at the grid, in the objective's unit.
        ascending: float64 (N,), the valid values, sorted.
        optimum: the best of them.
        evaluations: (m_s, m_e), the axis' ends in evaluations.
        fresh, again: float64 (n,), what an evaluation and a revisit of each row cost on the score's clock, seconds.
        budget_costs: float64 (n,), what a new evaluation costs on the budget's clock, seconds.
    """

    recording: Recording
    grid: np.ndarray
    curve: np.ndarray
    ascending: np.ndarray
    optimum: float
    evaluations: tuple[int, int]
    fresh: np.ndarray
    again: np.ndarray
    budget_costs: np.ndarray

    def limits(self) -> Limits:
        """The budget: seconds in Kernel Tuner's accounting, and at most the whole space."""
        return Limits(seconds=OVERRUN * float(self.grid[-1]))

    def session(self) -> Session:
        """A run under this budget; it keeps every legal request, which the score needs.

        It also ends where its score cannot change any more: when the score's clock, which revisits drive on, is well past the
        axis and its margin. Kernel Tuner would let an optimizer that only asks again go on for as long as its calls are quick.
        """
        beyond = (self.fresh, self.again, float(_BEYOND * self.grid[-1]))
        costs, call = self.budget_costs, CALL_SECONDS
        return Session(self.recording, self.limits(), costs=costs, call_seconds=call, overrun=True, second_clock=beyond)


def axis(recording: Recording) -> Axis:
    """Everything that scoring under `atm` needs to know of a recording.

    Raises:
        UserError: the recording has no cost parts, or is so easy that the axis has no length.
    """
    details = recording.details
    if details is None:
        raise UserError(f"{recording.name} does not say what its costs are made of, so that `atm` cannot score it")
    runs = details.run_seconds
    benchmark = details.seconds("benchmark")
    benchmark = np.where(benchmark > 0, benchmark, runs)  # T4 has no benchmark time
    overhead = details.seconds("compile") + details.seconds("verification")
    values = recording.values[~np.isnan(recording.values)]
    ascending = np.sort(values)
    worst_first = ascending if recording.maximize else ascending[::-1]
    evaluations = _evaluations(recording, worst_first)
    tau = float(np.median(recording.costs))
    grid = np.linspace(evaluations[0] * tau, evaluations[1] * tau, POINTS)
    curve = baseline(worst_first, grid, _mean_cost(recording))
    parts = (overhead + runs, runs, overhead + benchmark)
    return Axis(recording, grid, curve, ascending, float(worst_first[-1]), evaluations, *parts)


def _evaluations(recording: Recording, worst_first: np.ndarray) -> tuple[int, int]:
    """(m_s, m_e), at least 2 apart where the space allows it."""
    start, end = (_evaluations_to(recording, worst_first, p) for p in (START, END))
    if end - start < 2:
        # The package bounds these by an objective value where it means a number of evaluations; kept, as numbers depend on it.
        bound = float(worst_first[-1])
        if start == 0:
            end = min(bound, end + 2)  # type: ignore[assignment]
        else:
            start, end = start - 1, min(bound, end + 1)  # type: ignore[assignment]
    if end <= start:  # the bound may be 0 or less
        raise UserError(f"{recording.name}: random search is at the optimum so soon that `atm` has no time axis")
    return start, end


def _evaluations_to(recording: Recording, worst_first: np.ndarray, percentile: float) -> int:
    optimum, median = worst_first[-1], np.median(worst_first)
    target = optimum + (median - optimum) * (1 - percentile)
    reached = worst_first >= target if recording.maximize else worst_first <= target
    i = int(np.argmax(reached))
    if worst_first[i] == optimum:
        if i == 0:
            raise UserError(f"{recording.name}: every valid configuration is optimal; nothing to score")
        i -= 1
    return math.ceil(i / (len(worst_first) + 1 - i))


def _mean_cost(recording: Recording) -> float:
    """Seconds per evaluation as the package's baseline counts them ("mean_per_feval")."""
    failed = np.isnan(recording.values)
    if not failed.any():
        return float(recording.costs.mean())
    return float(recording.costs[~failed].mean() + failed.mean() * recording.costs[failed].mean())


def baseline(worst_first: np.ndarray, grid: np.ndarray, mean_cost: float) -> np.ndarray:
    """B: the value that random search without replacement is expected to have found, float64 (1000,).

    The expected rank after M draws of N is M (N + 1) / (M + 1), here as in the package read as an index from zero.
    """
    from scipy.interpolate import PchipInterpolator

    n = len(worst_first)
    draws = np.round(np.maximum(grid / mean_cost, 1)).astype(int)
    ranks = np.array([min(n - 1, round(m * (n + 1) / (m + 1))) for m in draws.tolist()])
    found = worst_first[ranks]
    first = np.concatenate([[True], np.diff(draws) > 0])
    if first.sum() < 2:
        return found
    return PchipInterpolator(draws[first], found[first])(np.linspace(draws[0], draws[-1], len(draws)))


# ---------------------------------------------------------------------------------------------------------------------
# Runs -> F -> P


class NotScorable(UserError):
    """These runs have no score under `atm`: a run has fewer than two points on the axis, or none that is valid."""


def run_points(trace: Trace, ax: Axis) -> tuple[np.ndarray, np.ndarray]:
    """(time, best value so far) after every legal request of a run, float64 (k,); NaN before the first valid one."""
    asks = trace.asks
    if asks is None:
        raise UserError(f"the trace of {trace.optimizer!r} keeps no revisits; `atm` scores runs made by `Axis.session`")
    first = np.zeros(len(asks), dtype=bool)
    first[np.unique(asks, return_index=True)[1]] = True
    clock = np.cumsum(np.where(first, ax.fresh[asks], ax.again[asks]))
    accumulate = np.fmax if ax.recording.maximize else np.fmin
    return clock, accumulate.accumulate(ax.recording.values[asks]) if len(asks) else np.empty(0)


def performance(traces: Sequence[Trace], ax: Axis, seed: int = 0) -> np.ndarray:
    """(F - B) / (optimum - B) of all runs of one optimizer on one recording, float64 (1000,); P is its mean.

    Args:
        seed: of the bagging; the package draws it from NumPy's global generator.

    Raises:
        NotScorable: the package has no score for these runs either.
    """
    return progress(curve([run_points(t, ax) for t in traces], ax, seed), ax)


def progress(values: np.ndarray, ax: Axis) -> np.ndarray:
    """Values at the grid, float64 (..., 1000), as the fraction of the way from B to the optimum."""
    way = ax.optimum - ax.curve
    if (way == 0).any():
        raise NotScorable(f"{ax.recording.name}: calculated random search finds the optimum before the axis ends")
    return (values - ax.curve) / way


def curve(runs: Sequence[tuple[np.ndarray, np.ndarray]], ax: Axis, seed: int = 0) -> np.ndarray:
    """F: the value known at each point of the grid, from all runs together, float64 (1000,)."""
    times, best = _matrix(runs)
    with np.errstate(all="ignore"):
        ends = np.sort(np.fmax.reduce(times, axis=0, initial=-np.inf))
    if not np.isfinite(ends).all():
        raise NotScorable(f"{ax.recording.name}: a run found no valid configuration")
    later = ends[ends > np.median(ends)]
    stop = float(later[0]) if len(later) else float(ax.grid[-1])
    if stop <= ax.grid[0]:
        raise NotScorable(f"{ax.recording.name}: half of the runs end before the axis starts")
    x, y = _pooled(times, np.searchsorted(ax.ascending, best).astype(float), ax)
    ranks = _bagged(x, y, len(runs), ax, seed)
    found = ax.ascending[np.clip(np.round(ranks).astype(int), 0, len(ax.ascending) - 1)]
    if stop < ax.grid[-1]:
        held = int(np.argmax(ax.grid > stop))
        found[held:] = found[held]
    return found


def _matrix(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Times and best values, (evaluations, runs), NaN where a run has none; an outlier in length is cut."""
    lengths = [len(t) for t, _ in runs]
    rows = max(lengths)
    if rows > 2 * np.mean(lengths):
        rows = int(2 * np.mean(lengths))
    times, best = np.full((2, rows, len(runs)), np.nan)
    for j, (t, b) in enumerate(runs):
        times[: len(t), j], best[: len(b), j] = t[:rows], b[:rows]
    times[np.isnan(best)] = np.nan
    some = ~np.isnan(best).all(axis=1)
    return times[some], best[some]


def _pooled(times: np.ndarray, ranks: np.ndarray, ax: Axis) -> tuple[np.ndarray, np.ndarray]:
    """The points of all runs on the axis and a margin around it, as one cloud, in order of evaluation."""
    margin = 0.1 + 0.25 * (times.shape[1] / times.size)
    inside = (ax.grid[0] * (1 - margin) <= times) & (times <= ax.grid[-1] * (1 + margin))
    if (inside.sum(axis=0) < 2).any():
        short = int((inside.sum(axis=0) < 2).sum())
        raise NotScorable(
            f"{ax.recording.name}: {short} of {times.shape[1]} runs have fewer than 2 points on the time axis"
        )
    return times[inside], ranks[inside]


def _bagged(x: np.ndarray, y: np.ndarray, runs: int, ax: Axis, seed: int) -> np.ndarray:
    """Mean prediction at the grid of isotonic regressions through random subsets of the cloud."""
    from sklearn.ensemble import BaggingRegressor
    from sklearn.isotonic import IsotonicRegression

    one = IsotonicRegression(increasing=ax.recording.maximize, y_min=y.min(), y_max=y.max(), out_of_bounds="clip")
    n = max(runs, 3)
    # A RandomState, not a seed: its draws are those of NumPy's global generator after np.random.seed(seed).
    state = np.random.RandomState(seed % 2**32)
    bagging = BaggingRegressor(one, n_estimators=n, max_samples=1 / np.sqrt(n), random_state=state)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # "low number of samples": a space of eight evaluations has no more
        return bagging.fit(x[:, None], y).predict(ax.grid[:, None])


# ---------------------------------------------------------------------------------------------------------------------
# An interval, which the package has none of


def resampled(traces: Sequence[Trace], ax: Axis, seed: int = 0) -> np.ndarray:
    """Deviations of P from itself when runs are drawn again, float64 (2000,), mean zero.

    Of a close stand-in for F that needs no regression: the mean over runs of the rank known at each time. Bagging two thousand
    times over would take minutes per optimizer.
    """
    ranks = np.empty((len(traces), POINTS))
    for run, trace in enumerate(traces):
        times, best = run_points(trace, ax)
        valid = ~np.isnan(best)
        known = np.searchsorted(ax.ascending, best[valid])
        start = known[0] if len(known) else len(ax.ascending) // 2
        ranks[run] = np.concatenate([[start], known])[np.searchsorted(times[valid], ax.grid, side="right")]
    rng = np.random.default_rng(seed)
    picks = rng.integers(len(traces), size=(_RESAMPLES, len(traces)))
    weights = np.stack([np.bincount(p, minlength=len(traces)) for p in picks]) / len(traces)
    values = ax.ascending[np.round(weights @ ranks).astype(int)]
    p = progress(values, ax).mean(axis=1)
    return p - p.mean()


def interval(mean: float, deviations: np.ndarray) -> Estimate:
    """95 % interval of a P under `atm` from its resampled deviations."""
    low, high = np.percentile(deviations, [2.5, 97.5])
    return Estimate(mean, mean + float(low), mean + float(high))
