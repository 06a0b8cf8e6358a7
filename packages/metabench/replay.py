"""An optimizer against a recording, on a simulated clock. Here live the rules of asking.

- A new configuration costs what its evaluation cost when it was recorded, failures included; a revisit is answered at no cost.
- Values are taken by equality (64.0 is 64). What is illegal, malformed or NaN is answered with +inf, at no cost.
- An evaluation that starts before the end counts; it counts at the end if it ends later.
- Calls of any kind are capped: an optimizer that re-asks for ever, or proposes only illegal points, ends.
- The end is a `Stop`, a BaseException that `except Exception` does not swallow, and every later call raises it again.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import UserError
from .recording import Recording
from .searchspace import Searchspace
from .space import Space

Optimizer = Callable[["Func", Searchspace], Any]


class Stop(BaseException):
    """The budget is spent. Not an Exception, so that an optimizer's `except Exception` does not keep it running."""


@dataclass(frozen=True)
class Limits:
    """When a run ends; None means no limit of that kind.

    Attributes:
        seconds: simulated seconds of evaluation.
        evaluations: new configurations, failures included.
        calls: calls of any kind; by default 10 n + 1,000 for a space of n configurations.
        loss: the run ends as soon as one so low was measured; the optimizer is not told which. With the optimum here P is what it
            is without, and a good optimizer's runs are shorter.
    """

    seconds: float | None = None
    evaluations: int | None = None
    calls: int | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "evaluations", "calls"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"a budget of {value} {name} allows nothing; it must be positive")


@dataclass
class Trace:
    """What happened in one run.

    Attributes:
        rows: int64 (k,), the new configurations in the order they were evaluated, as rows of the recording's space.
        times: float64 (k,), simulated seconds at which each evaluation ended.
        calls, illegal, revisits: how often the optimizer asked, in all, for what is no configuration, for what it had.
        ended: "budget" | "evaluations" | "calls" | "exhausted" (the whole space was seen) | "found" (`Limits.loss`) |
            "returned" | "error".
        error: what the optimizer raised, if it ended so.
        overhead: CPU seconds of the optimizer's own code and of the replay around it.
        asks: int32 (m,), all legal requests in order, revisits included; None if the session kept none.
    """

    recording: str
    optimizer: str
    seed: int
    rows: np.ndarray
    times: np.ndarray
    calls: int
    illegal: int
    revisits: int
    ended: str
    error: str = ""
    overhead: float = 0.0
    asks: np.ndarray | None = None


@dataclass
class Session:
    """One run's state: the clock, what was seen, what is left. `ask` is the only way in.

    Attributes:
        costs: what a new evaluation of each row costs, float64 (n,) seconds; by default the recording's costs.
        call_seconds: what every call costs besides.
        overrun: an evaluation that starts before the end counts when it ends, even if that is after the end; and all legal
            requests are kept. Kernel Tuner's rules, which the estimator `atm` stands on.
        second_clock: (fresh, again, end): another clock, on which a new evaluation of a row costs fresh[row] and a revisit
            again[row]; the run ends when it passes `end`. Only with `overrun`.
        cpu: the optimizer's own CPU time, measured between answers, counts as well; runs then depend on the machine.
    """

    recording: Recording
    limits: Limits = Limits()
    rows: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    calls: int = 0
    illegal: int = 0
    revisits: int = 0
    ended: str = ""
    costs: np.ndarray | None = None
    call_seconds: float = 0.0
    overrun: bool = False
    second_clock: tuple[np.ndarray, np.ndarray, float] | None = None
    cpu: bool = False

    def __post_init__(self) -> None:
        self._find = self.recording.space.find
        self._losses = self.recording.loss_list
        self._costs = self.recording.cost_list if self.costs is None else self.costs.tolist()
        self._seen: set[int] = set()
        self._asks: array[int] | None = array("i") if self.overrun else None
        self._second, self._second_end = 0.0, math.inf
        if self.second_clock is not None:
            self._fresh, self._again = self.second_clock[0].tolist(), self.second_clock[1].tolist()
            self._second_end = self.second_clock[2]
        self._clock = 0.0
        size = len(self.recording.space)
        self._most_seconds = math.inf if self.limits.seconds is None else self.limits.seconds
        self._most_evaluations = min(self.limits.evaluations or size, size)
        self._most_calls = self.limits.calls or 10 * size + 1_000
        self._enough = -math.inf if self.limits.loss is None else self.limits.loss
        self._latest = math.inf if self.overrun else self._most_seconds
        self._answered = time.process_time()

    def ask(self, configuration: Sequence[Any]) -> float:
        """The loss of a configuration, lower is better; +inf for a failure and for what is no configuration.

        Raises:
            Stop: the run is over, now and for every later call.
        """
        if self.ended or self._is_over():
            raise Stop(self.ended)
        self.calls += 1
        self._clock += self.call_seconds
        if self.cpu:
            since, self._answered = self._answered, time.process_time()
            self._clock = min(self._clock + self._answered - since, self._latest)
        row = self._find(configuration)
        if row is None:
            self.illegal += 1
            return math.inf
        if self._asks is not None:
            self._asks.append(row)
            if self.second_clock is not None:
                self._second += self._again[row] if row in self._seen else self._fresh[row]
        if row in self._seen:
            self.revisits += 1
        else:
            self._seen.add(row)
            clock = self._clock + self._costs[row]
            self._clock = clock if clock < self._latest else self._latest
            self.rows.append(row)
            self.times.append(self._clock)
            if self._losses[row] <= self._enough:
                self.ended = "found"
                raise Stop(self.ended)
        if self.cpu:
            self._answered = time.process_time()
        return self._losses[row]

    def _is_over(self) -> bool:
        if self._clock >= self._most_seconds or self._second > self._second_end:
            self.ended = "budget"
        elif len(self.rows) >= self._most_evaluations:
            self.ended = "exhausted" if len(self.rows) == len(self.recording.space) else "evaluations"
        elif self.calls >= self._most_calls:
            self.ended = "calls"
        return bool(self.ended)

    @property
    def space(self) -> Space:
        """The space that is asked about."""
        return self.recording.space

    @property
    def spent_fraction(self) -> float:
        """How much of the budget is spent, 0 to 1: the largest of the limits' fractions."""
        return min(1.0, max(self._clock / self._most_seconds, len(self.rows) / self._most_evaluations))

    def trace(self, optimizer: str = "", seed: int = 0, error: str = "", overhead: float = 0.0) -> Trace:
        """The run so far, as a record."""
        rows, times = np.array(self.rows, dtype=np.int64), np.array(self.times, dtype=np.float64)
        ended = self.ended or ("error" if error else "returned")
        counts = (self.calls, self.illegal, self.revisits)
        asks = None if self._asks is None else np.array(self._asks, dtype=np.int32)
        return Trace(self.recording.name, optimizer, seed, rows, times, *counts, ended, error, overhead, asks)


class Func:
    """What an optimizer sees as `func`: it can ask, and see how much of its budget is spent, and nothing else.

    Args:
        ask: answers a configuration; a session's, or in another process one that asks a session's.
        fraction: tells how much of the budget is spent.
    """

    __slots__ = ("_ask", "_fraction")

    def __init__(self, ask: Callable[[Sequence[Any]], float], fraction: Callable[[], float]) -> None:
        self._ask, self._fraction = ask, fraction

    def __call__(self, configuration: Sequence[Any], check_restrictions: bool = True) -> float:
        """The loss of a configuration, lower is better; +inf if it failed or is no valid configuration."""
        return self._ask(configuration)

    eval = __call__

    def eval_all(self, configurations: Sequence[Sequence[Any]], check_restrictions: bool = True) -> list[float]:
        """The losses of several configurations, asked one after the other."""
        return [self._ask(c) for c in configurations]

    @property
    def budget_spent_fraction(self) -> float:
        """How much of the budget is spent, 0 to 1."""
        return self._fraction()


def replay(
    optimizer: Optimizer,
    recording: Recording,
    limits: Limits | None = None,
    seed: int = 0,
    name: str = "",
    session: Session | None = None,
) -> Trace:
    """Run a trusted optimizer, in this process, against a recording.

    The global generators of `random` and `numpy.random` are seeded for the run and restored after it, so that a seed decides the
    trace even of an optimizer that draws from them. What the optimizer raises ends its run and is kept in the trace.

    Args:
        session: a fresh session with rules of its own (`atm.Axis.session`); it brings its limits.
    """
    session = session or Session(recording, limits or Limits())
    searchspace = Searchspace(recording.space, seed)
    error = ""
    started = time.process_time()
    with global_seed(seed):
        try:
            optimizer(Func(session.ask, lambda: session.spent_fraction), searchspace)
        except Stop:
            pass
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    return session.trace(name, seed, error, time.process_time() - started)


@contextlib.contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed Python's and NumPy's global generators inside the block, and put them back as they were after it."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
