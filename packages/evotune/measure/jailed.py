"""A Python file that tunes live without running in this process: the jail has it, it asks, and this process measures."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metabench.errors import UserError
from metabench.replay import Stop
from metabench.space import Space

from ..contract import Rejected, check, imported
from ..jail import Jail, JailLimits
from .runner import MeasuringRunner


class CandidateFailed(Exception):
    """The program failed; the message says how, and where."""


class JailedTuner:
    """What `drive` takes for a strategy. The program sees the search space of `metabench`, as it does when it is scored.

    Args:
        path: of the file.
        limits: of the jail, for the whole run; the time that measuring takes does not count.

    Raises:
        UserError: no such file, or one that the jail does not take.
    """

    def __init__(self, path: str, limits: JailLimits | None = None) -> None:
        if not Path(path).is_file():
            raise UserError(f"there is no file {path}")
        self._source, self._limits = Path(path).read_text(), limits
        try:
            self._class = check(self._source)
        except Rejected as rejected:
            raise UserError(
                f"{path} cannot run in the jail: {rejected}; say jail=false if you trust it and it needs that"
            ) from rejected

    def tune(self, searchspace: Any, runner: MeasuringRunner, tuning_options: Any) -> list[dict[str, Any]]:
        """Run it; returns nothing of its own, since the runner keeps all outcomes.

        Raises:
            CandidateFailed: it did not end well.
            metabench.replay.Stop: the budget was spent before it could ask.
        """
        runner.stop_if_over()
        answers = _Measured(runner)
        with Jail(self._limits) as jail:
            jail.warn()
            ending = jail.answer(self._source, self._class, answers, tuning_options.seed, imported(self._source))
        if answers.error is not None:
            raise answers.error
        if ending.failure is not None:
            raise CandidateFailed(str(ending.failure))
        return []


class _Measured:
    """Answers a candidate by measuring: the runner, as the jail wants to see it (`evotune._run.Answers`).

    Attributes:
        error: what went wrong here, not there; to the candidate it is the end of its budget.
    """

    def __init__(self, runner: MeasuringRunner) -> None:
        self._runner = runner
        self.error: Exception | None = None
        self._answered = time.perf_counter()

    def ask(self, configuration: Sequence[Any]) -> float:
        """Milliseconds; +inf for what has no time."""
        if self.error is not None:
            raise Stop("measuring failed")
        self._runner.accumulated_strategy_time += time.perf_counter() - self._answered
        try:
            self._runner.run([configuration], None)
        except Exception as error:
            self.error = error
            raise Stop("measuring failed") from error
        self._answered = time.perf_counter()
        row = self.space.find(configuration)
        if row is None:
            return np.inf
        if row not in self._runner.outcomes:
            raise Stop("the budget is spent")
        time_ms = self._runner.outcomes[row].time
        return np.inf if time_ms is None else time_ms

    @property
    def space(self) -> Space:
        return self._runner.space

    @property
    def calls(self) -> int:
        return self._runner.calls

    @property
    def illegal(self) -> int:
        return self._runner.illegal

    @property
    def rows(self) -> Collection[int]:
        return self._runner.outcomes

    @property
    def ended(self) -> str:
        return self._runner.ended

    @property
    def spent_fraction(self) -> float:
        return self._runner.spent_fraction
