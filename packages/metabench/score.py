"""Traces -> the performance score P, estimator `direct`.

P is the area between an optimizer's best-so-far curve F and random search's S, on simulated time, scaled so that random
search is 0 and the optimum at once is 1:

    P of a run = mean over the grid of (S - F) / (S - optimum)

F holds the median before the first valid evaluation and its last value after the run ended. No wall clock of the scoring machine
enters, and nothing is random but the optimizer. docs/scoring.md compares this with the estimator of autotuning_methodology.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import bootstrap
from .baseline import Baseline, baseline
from .bootstrap import Estimate
from .errors import UserError
from .recording import Recording
from .replay import Limits, Optimizer, Trace, replay

Factory = Callable[[], Optimizer]


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
        seed, repeats: run r of every optimizer has seed `seed + r`, so that runs are paired.
        p: float64 (optimizers, recordings, repeats).
        curves: float64 (optimizers, recordings, repeats, 1000), the progress curves.
        traces: the runs themselves, by (optimizer, recording).
        baselines: by recording.
    """

    optimizers: list[str]
    recordings: list[str]
    seed: int
    repeats: int
    p: np.ndarray
    curves: np.ndarray
    traces: dict[tuple[str, str], list[Trace]]
    baselines: dict[str, Baseline]

    def on(self, optimizer: str, recording: str) -> Estimate:
        """P on one recording."""
        return bootstrap.over_repeats([self.p[self._place(optimizer), self.recordings.index(recording)]])

    def mean(self, optimizer: str) -> Estimate:
        """P in the mean over the recordings, for these recordings."""
        return bootstrap.over_repeats(list(self.p[self._place(optimizer)]))

    def mean_over_spaces(self, optimizer: str) -> Estimate:
        """P in the mean over the recordings, for spaces like these: the recordings are resampled too."""
        return bootstrap.over_spaces(list(self.p[self._place(optimizer)]))

    def difference(self, optimizer: str, other: str) -> Estimate:
        """How much better the one is than the other, paired by seed."""
        return bootstrap.paired_difference(list(self.p[self._place(optimizer)]), list(self.p[self._place(other)]))

    def _place(self, optimizer: str) -> int:
        return self.optimizers.index(optimizer)


def score(
    optimizers: Mapping[str, Factory],
    recordings: Sequence[Recording],
    repeats: int = 25,
    seed: int = 0,
    progress: Callable[[str, str, int], None] | None = None,
) -> Scores:
    """Run every optimizer on every recording, `repeats` times, and score the runs.

    Args:
        optimizers: {name: factory}; each run gets a fresh optimizer. They run in this process: trusted code only.
        progress: called with optimizer, recording and runs done so far, after every run.

    Raises:
        UserError: nothing to score, names that clash, or an optimizer that raised (the message says what).
    """
    if not optimizers or not recordings or repeats < 1:
        raise UserError("scoring needs at least one optimizer, one recording and one repeat")
    names = [r.name for r in recordings]
    if len(set(names)) != len(names):
        raise UserError(f"two recordings have the same name: {', '.join(names)}")
    p = np.empty((len(optimizers), len(recordings), repeats))
    curves = np.empty((*p.shape, len(baseline(recordings[0]).grid)))
    scores = Scores(list(optimizers), names, seed, repeats, p, curves, {}, {})
    for j, recording in enumerate(recordings):
        base = scores.baselines[recording.name] = baseline(recording)
        for i, (name, factory) in enumerate(optimizers.items()):
            traces = scores.traces[name, recording.name] = []
            for run in range(repeats):
                trace = _run(name, factory, recording, base, seed + run)
                traces.append(trace)
                curves[i, j, run] = progress_curve(trace, recording, base)
                if progress:
                    progress(name, recording.name, run + 1)
    p[:] = curves.mean(axis=-1)
    return scores


def _run(name: str, factory: Factory, recording: Recording, base: Baseline, seed: int) -> Trace:
    trace = replay(factory(), recording, Limits(seconds=base.end), seed, name)
    if trace.error:
        raise UserError(f"optimizer {name!r} failed on {recording.name} with seed {seed}: {trace.error}")
    return trace
