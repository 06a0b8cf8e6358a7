"""Traces -> the performance score P, estimator `direct`; and the table of scores, with `atm` beside it where asked for.

P is the area between an optimizer's best-so-far curve F and random search's S, on simulated time, scaled so that random
search is 0 and the optimum at once is 1:

    P of a run = mean over the grid of (S - F) / (S - optimum)

F holds the median before the first valid evaluation and its last value after the run ended. No wall clock of the scoring machine
enters, and nothing is random but the optimizer. docs/scoring.md compares this with the estimator of autotuning_methodology,
which `metabench.atm` is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from . import atm, bootstrap, pairs
from .baseline import POINTS as GRID_POINTS
from .baseline import Baseline, baseline
from .bootstrap import Estimate
from .errors import UserError, choose
from .pairs import ESTIMATORS, Factory, Job, Result
from .recording import Recording
from .replay import Trace


def best_so_far(trace: Trace, recording: Recording, base: Baseline) -> np.ndarray:
    """F at the baseline's grid, float64 (1000,): the best loss known at each time."""
    best = np.minimum.accumulate(recording.losses[trace.rows])
    best[np.isinf(best)] = base.median
    return np.concatenate([[base.median], best])[np.searchsorted(trace.times, base.grid, side="right")]


def progress_curve(trace: Trace, recording: Recording, base: Baseline) -> np.ndarray:
    """(S - F) / (S - optimum) at the grid, float64 (1000,): 0 is random search, 1 the optimum."""
    return (base.curve - best_so_far(trace, recording, base)) / (base.curve - base.optimum)


def performance(trace: Trace, recording: Recording, base: Baseline) -> float:
    """P of one run."""
    return float(progress_curve(trace, recording, base).mean())


@dataclass
class Scores:
    """P of some optimizers on some recordings, run by run.

    Attributes:
        optimizers, recordings: names, in the order of the arrays' axes.
        seed, repeats: of which the seeds of the runs follow (`pairs.seeds_of`), the same for every optimizer.
        p: float64 (optimizers, recordings, repeats), estimator `direct`; NaN where it was not asked for.
        curves: float64 (optimizers, recordings, repeats, 1000), the progress curves under `direct`.
        traces: the runs themselves under `direct`, by (optimizer, recording).
        baselines: by recording.
        estimators: which of `direct`, `atm` were asked for.
        results: everything that was run, by (optimizer, recording).
        seen: the (optimizer, recording) pairs where the optimizer's provenance says that it was evolved on that space.
    """

    optimizers: list[str]
    recordings: list[str]
    seed: int
    repeats: int
    p: np.ndarray
    curves: np.ndarray
    traces: dict[tuple[str, str], list[Trace]]
    baselines: dict[str, Baseline]
    estimators: tuple[str, ...] = ("direct",)
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def on(self, optimizer: str, recording: str, estimator: str = "direct") -> Estimate:
        """P on one recording; under `atm` NaN where that estimator has no score (`results` says why)."""
        return self._estimate(optimizer, [recording], estimator)

    def mean(self, optimizer: str, without: Sequence[str] = (), estimator: str = "direct") -> Estimate:
        """P in the mean over the recordings, for these recordings, leaving some out."""
        kept = [name for name in self.recordings if name not in without]
        return self._estimate(optimizer, kept, estimator)

    def mean_over_spaces(self, optimizer: str) -> Estimate:
        """P in the mean over the recordings, for spaces like these: the recordings are resampled too."""
        return bootstrap.over_spaces(self._runs(optimizer))

    def difference(self, optimizer: str, other: str, without: Sequence[str] = ()) -> Estimate:
        """How much better the one is than the other under `direct`, paired by seed."""
        return bootstrap.paired_difference(self._runs(optimizer, without), self._runs(other, without))

    def comparisons(self, without: Sequence[str] = ()) -> list[bootstrap.Comparison]:
        """All pairs of optimizers under `direct`, the better one first, paired by seed; p-values adjusted after Holm."""
        ranked = sorted(self.optimizers, key=lambda name: -self.mean(name, without).mean)
        couples = [(a, b) for i, a in enumerate(ranked) for b in ranked[i + 1 :]]
        return bootstrap.compare({name: self._runs(name, without) for name in ranked}, couples)

    def failures(self, optimizer: str) -> dict[str, str]:
        """{recording: reason} where the optimizer failed and so has no score."""
        reasons = {name: self.results[optimizer, name].failure for name in self.recordings}
        return {name: reason for name, reason in reasons.items() if reason}

    def complete(self) -> Scores:
        """These scores without the optimizers that failed on any space: what can be compared and drawn."""
        kept = [i for i, name in enumerate(self.optimizers) if not self.failures(name)]
        names = [self.optimizers[i] for i in kept]
        return replace(self, optimizers=names, p=self.p[kept], curves=self.curves[kept])

    def _runs(self, optimizer: str, without: Sequence[str] = ()) -> list[np.ndarray]:
        own = self.p[self.optimizers.index(optimizer)]
        return [own[j] for j, name in enumerate(self.recordings) if name not in without]

    def _estimate(self, optimizer: str, recordings: Sequence[str], estimator: str) -> Estimate:
        if choose(estimator, self.estimators, "estimator of these scores") == "direct":
            return bootstrap.over_repeats(self._runs(optimizer, [n for n in self.recordings if n not in recordings]))
        results = [self.results[optimizer, name] for name in recordings]
        curves = [r.atm_curve for r in results if r.atm_curve is not None]
        deviations = [r.atm_deviations for r in results if r.atm_deviations is not None]
        if len(curves) < len(results) or not results:
            return Estimate(np.nan, np.nan, np.nan)
        return atm.interval(float(np.mean(curves)), np.mean(deviations, axis=0))


def score(
    optimizers: Mapping[str, Factory | str],
    recordings: Sequence[Recording],
    repeats: int = 25,
    seed: int = 0,
    progress: Callable[[str, str, int], None] | None = None,
    estimators: Sequence[str] = ("direct",),
    workers: int = 1,
    overhead: str = "none",
) -> Scores:
    """Run every optimizer on every recording, `repeats` times, and score the runs.

    Args:
        optimizers: {name: factory}, or a registered name in the factory's place; each run gets a fresh optimizer. They run in
            this process or in plain child processes: trusted code only, but for factories that do the runs themselves
            (`metabench.pairs.RunsElsewhere`); where one of these fails, it has no score, and `results` say why.
        progress: called with optimizer, recording and runs done so far, after every run (with workers, after every pair).
        estimators: "direct", "atm" or both; each has a budget of its own and so takes runs of its own.
        workers: processes; results do not depend on it.
        overhead: "cpu" puts the optimizer's own CPU time on the clock of `direct`; scores then depend on the machine.

    Raises:
        UserError: nothing to score, names that clash, or an optimizer that raised (the message says what).
    """
    names = _check(optimizers, recordings, repeats, seed, estimators, workers)
    choose(overhead, ("none", "cpu"), "overhead")
    base = {r.name: baseline(r) for r in recordings}
    p = np.full((len(optimizers), len(recordings), repeats), np.nan)
    scores = Scores(list(optimizers), names, seed, repeats, p, np.full((*p.shape, GRID_POINTS), np.nan), {}, base)
    scores.estimators = tuple(name for name in ESTIMATORS if name in estimators)
    scores.seen = {(o, r) for o, factory in optimizers.items() for r in names if _has_seen(factory, r)}
    jobs = [
        Job(o, factory, r, pairs.seeds_of(r, seed, repeats), scores.estimators, overhead == "cpu")
        for r in names
        for o, factory in optimizers.items()
    ]
    by_name = dict(zip(names, recordings, strict=True))
    for job, result in pairs.run_all(jobs, by_name, workers):
        _enter(scores, job, result, by_name[job.recording])
        for done in range(repeats if progress else 0):
            progress(job.name, job.recording, done + 1)  # type: ignore[misc]
    return scores


def _enter(scores: Scores, job: Job, result: Result, recording: Recording) -> None:
    scores.results[job.name, job.recording] = result
    scores.traces[job.name, job.recording] = result.traces
    place = scores.optimizers.index(job.name), scores.recordings.index(job.recording)
    if result.failure:
        return
    for run, trace in enumerate(result.traces):
        scores.curves[place][run] = progress_curve(trace, recording, scores.baselines[job.recording])
    scores.p[place] = scores.curves[place].mean(axis=-1)


def _has_seen(factory: Factory | str, recording: str) -> bool:
    """Whether an optimizer's provenance names this recording, or its kernel, among those that it was evolved on."""
    provenance = getattr(pairs.factory_of(factory), "provenance", None) or {}
    spaces = provenance.get("spaces") or []
    return recording in spaces or recording.split("/")[0] in spaces


def _check(
    optimizers: Mapping[str, Factory | str],
    recordings: Sequence[Recording],
    repeats: int,
    seed: int,
    estimators: Sequence[str],
    workers: int,
) -> list[str]:
    """The recordings' names, if all is well."""
    for what, count in (("repeats", repeats), ("seed", seed), ("workers", workers)):
        if not isinstance(count, int) or isinstance(count, bool):
            raise UserError(f"{what} must be a whole number, not {count!r}")
    if not optimizers or not recordings or repeats < 1 or not estimators or workers < 1:
        raise UserError("scoring needs at least one optimizer, recording, repeat, estimator and worker")
    for name in estimators:
        choose(name, ESTIMATORS, "estimator")
    names = [r.name for r in recordings]
    if len(set(names)) != len(names):
        raise UserError(f"two recordings have the same name: {', '.join(names)}")
    return names
