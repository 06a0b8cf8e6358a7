"""Kernel Tuner's side of live tuning: a runner that measures through our workers, and a budget that holds.

Kernel Tuner's strategies ask its `CostFunc`, which asks the runner. Whatever is asked passes here, so here live the rules of
asking, the same as in `metabench.replay`: a configuration is measured once; a revisit is free; what is illegal, malformed or
NaN is a failure that costs nothing; calls are capped; the end is `metabench.replay.Stop`, a BaseException.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kernel_tuner import util
from kernel_tuner.runners.runner import Runner

from metabench.replay import Limits, Stop
from metabench.space import Space

from .outcome import Outcome
from .pool import Pool

_ERRORS = {"compile": util.CompilationFailedConfig}  # the rest are RuntimeFailedConfig to Kernel Tuner


class Budget(util.TuningBudget):
    """Kernel Tuner's budget, whose end no `except Exception` swallows and no optimizer moves: the runner decides."""

    def __init__(self, runner: MeasuringRunner) -> None:
        super().__init__()
        self._runner = runner

    def is_done(self) -> bool:
        """Whether the run is over."""
        return bool(self._runner.over())

    def raise_exception_if_done(self) -> None:
        """Raise `Stop` if the run is over."""
        self._runner.stop_if_over()

    def get_fraction_consumed(self) -> float:
        """How much of the budget is spent, 0 to 1."""
        return self._runner.spent_fraction


class MeasuringRunner(Runner):
    """Measures what is asked for and keeps every outcome.

    Args:
        limits: seconds are wall clock from now; evaluations are new configurations, failures included.
        progress: called with each new outcome.

    Attributes:
        outcomes: {row of the space: outcome}, in the order of measuring.
        calls, illegal, revisits: as in `metabench.replay.Trace`; what strategies by name ask illegally stays with `CostFunc`.
        ended: "seconds" | "evaluations" | "exhausted" | "calls"; empty while the run goes on.
    """

    def __init__(
        self, pool: Pool, space: Space, limits: Limits, progress: Callable[[Outcome], None] | None = None
    ) -> None:
        super().__init__()
        self.accumulated_strategy_time: float = 0.0  # of Kernel Tuner's base class: seconds, added to by CostFunc
        self.pool, self.space, self.limits, self.progress = pool, space, limits, progress
        self.outcomes: dict[int, Outcome] = {}
        self.calls = self.illegal = self.revisits = 0
        self.ended = ""
        self.started = time.perf_counter()
        self.most = min(limits.evaluations or len(space), len(space))
        self.most_calls = limits.calls or 10 * len(space) + 1_000

    # -- what Kernel Tuner calls --------------------------------------------------------------------------------------

    def run(self, parameter_space: Sequence[Any], tuning_options: Any) -> list[dict[str, Any] | None]:
        """Results of configurations, in Kernel Tuner's form; None for those that the budget no longer covers."""
        self.stop_if_over()
        self.calls += max(
            1, len(parameter_space)
        )  # CostFunc keeps illegal configurations to itself: then there are none
        rows = [self.space.find(configuration) for configuration in parameter_space]
        self.illegal += rows.count(None)
        new = [row for row in dict.fromkeys(rows) if row is not None and row not in self.outcomes]
        self.revisits += len(rows) - rows.count(None) - len(new)
        thinking, self.accumulated_strategy_time = self.accumulated_strategy_time * 1e3, 0
        self.measure(new[: self.most - len(self.outcomes)], thinking / max(1, len(new)))
        return [self._result(row) for row in rows]

    def get_device_info(self) -> Any:
        """What `Searchspace` is told of the device: no limit on threads."""
        return SimpleNamespace(max_threads=10**9, name="cpu")

    def get_environment(self, tuning_options: Any) -> dict[str, Any]:
        """Nothing: the result of `tune` says where it was measured."""
        return {}

    # -- what we call -------------------------------------------------------------------------------------------------

    def measure(self, rows: Sequence[int], strategy_time: float = 0.0) -> None:
        """Measure rows that are new, as far as time allows; `strategy_time` is what each took to ask for, in ms."""
        taken: list[int] = []

        def as_time_allows() -> Iterator[dict[str, Any]]:
            for row in rows:
                if self._seconds() >= (self.limits.seconds or float("inf")):
                    return
                taken.append(row)
                yield self.space.describe(row)

        for place, outcome in self.pool.measure(as_time_allows(), self.best_time):
            self.outcomes[taken[place]] = outcome = replace(outcome, strategy_time=strategy_time)
            if self.progress:
                self.progress(outcome)

    @property
    def best(self) -> Outcome | None:
        """The fastest correct outcome."""
        return next(iter(self.ranking()), None)

    @property
    def best_time(self) -> float | None:
        """Its milliseconds."""
        return self.best.time if self.best else None

    def ranking(self) -> list[Outcome]:
        """Correct outcomes, fastest first."""
        return sorted((o for o in self.outcomes.values() if o.time is not None), key=lambda o: o.time or 0.0)

    def failures(self) -> dict[str, int]:
        """How many configurations failed, by kind."""
        return dict(Counter(o.status for o in self.outcomes.values() if not o.correct))

    @property
    def spent_fraction(self) -> float:
        """How much of the budget is spent, 0 to 1: the larger of the limits' fractions."""
        seconds = self._seconds() / self.limits.seconds if self.limits.seconds else 0.0
        return min(1.0, max(seconds, len(self.outcomes) / self.most))

    def over(self) -> str:
        """Why the run is over; empty if it is not."""
        if len(self.outcomes) >= self.most:
            self.ended = "exhausted" if len(self.outcomes) == len(self.space) else "evaluations"
        elif self.limits.seconds and self._seconds() >= self.limits.seconds:
            self.ended = "seconds"
        elif self.calls >= self.most_calls:
            self.ended = "calls"
        return self.ended

    def stop_if_over(self) -> None:
        """Raise `Stop` if the run is over."""
        if self.over():
            raise Stop(self.ended)

    def _seconds(self) -> float:
        return time.perf_counter() - self.started

    def _result(self, row: int | None) -> dict[str, Any] | None:
        if row is None:
            return {**dict.fromkeys(self.space.names), "__error__": util.InvalidConfig()}
        return kernel_tuner_result(self.outcomes[row]) if row in self.outcomes else None


def kernel_tuner_result(outcome: Outcome) -> dict[str, Any]:
    """An outcome as Kernel Tuner's runners state it."""
    parts = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time", "timestamp")
    result = {**outcome.configuration, **{name: getattr(outcome, name) for name in parts}}
    if outcome.correct:
        return {**result, "time": outcome.time, "times": list(outcome.times)}
    return {**result, "__error__": _ERRORS.get(outcome.status, util.RuntimeFailedConfig)()}
