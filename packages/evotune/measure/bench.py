"""Build, check and time one configuration; what a worker process does, without the process.

The order matters. The first run is the check: arguments restored, outputs poisoned, every output value compared. Only a right
answer is timed, and arguments are restored before each timed run too, because a kernel that updates its arguments in place
would otherwise run on ever other numbers. After the last timed run the outputs are compared once more: a kernel with state
of its own can be right once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from metabench.timing import interleaved

from . import backend, check
from .backend import BuildError
from .outcome import CORRECT, Outcome, trimmed
from .realtime import realtime
from .task import Task

_SETTLED = 1.01  # the two fastest runs agree within this factor
_MOST = 3  # times `repeats` runs at most, to get there


class Failure(Exception):
    """The configuration has failed; `status` says how."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bench:
    """One kernel's inputs and right answer, ready for any number of configurations.

    Args:
        exclusive: makes a context in which no other worker times anything.
        tell: called with "build", "wait" or "run" before each, so that whoever watches knows what has taken so long.
    """

    def __init__(
        self, task: Task, exclusive: Callable[[], AbstractContextManager[Any]], tell: Callable[[str], None]
    ) -> None:
        self.task, self.exclusive, self.tell = task, exclusive, tell
        self.reference = task.kernel.reference()
        inputs = self.reference.inputs(task.size, seed=task.seed)
        self.expected = self.reference.expected(inputs)
        with realtime(task.realtime):  # if it is not allowed, say so before anything is measured
            pass
        self.backend = backend.make(task.backend, task.kernel, task.flags, task.compiler, inputs)

    def measure(self, configuration: Mapping[str, Any], best: float | None = None) -> Outcome:
        """One configuration's outcome; `best` is the least time so far, for the cutoff."""
        clock = _Clock()
        status, error, times = CORRECT, "", []
        try:
            with clock.part("compile"):
                build = self._build(configuration)
            try:
                self.tell("wait")
                with clock.waiting(self.exclusive()), realtime(self.task.realtime):
                    with clock.part("verification"):
                        self._run(build)
                        self._verify()
                    with clock.part("benchmark"):
                        times = self._time(build, best)
                    with clock.part("verification"):
                        self._verify(f" after {len(times)} more runs")
            finally:
                build.release()
        except Failure as failure:
            status, error = failure.status, trimmed(str(failure), f"{Path.cwd()}/")
        ms, rest = clock.milliseconds, clock.rest()
        time_ms = min(times) if status == CORRECT else None
        parts = (ms["compile"], ms["verification"], ms["benchmark"], rest)
        return Outcome(
            dict(configuration), status, time_ms, tuple(times if status == CORRECT else ()), *parts, error=error
        )

    def compare(self, configurations: Sequence[Mapping[str, Any]], rounds: int) -> list[list[float]]:
        """Milliseconds of configurations that were run in turns, in fresh order each round: one list of `rounds` each."""
        builds = [self._build(configuration) for configuration in configurations]
        spent = 0.0

        def call(build: backend.Build) -> Callable[[], None]:
            def run() -> None:
                nonlocal spent
                spent += self._run(build)

            return run

        try:
            # The clock counts kernel time alone: restoring the arguments stays out of it.
            with self.exclusive(), realtime(self.task.realtime):
                candidates = {str(place): call(build) for place, build in enumerate(builds)}
                timing = interleaved(candidates, rounds, clock=lambda: spent)
        finally:
            for build in builds:
                build.release()
        return timing.seconds.tolist()

    def _build(self, configuration: Mapping[str, Any]) -> backend.Build:
        self.tell("build")
        try:
            return self.backend.build(configuration)
        except BuildError as error:
            raise Failure("compile", str(error)) from error

    def _verify(self, when: str = "") -> None:
        """Compare what the last run left."""
        got = self.backend.outputs(self.reference.OUTPUTS)
        wrong = check.differences(got, self.expected, self.reference.RTOL, self.reference.ATOL)
        if wrong:
            raise Failure("verification", wrong + when)

    def _time(self, build: backend.Build, best: float | None) -> list[float]:
        times: list[float] = []
        repeats, cutoff = self.task.repeats, self.task.cutoff
        while len(times) < repeats or (len(times) < _MOST * repeats and not _settled(times)):
            times.append(self._run(build))
            if cutoff and best and len(times) == 2 and min(times) > cutoff * best:
                break
        return times

    def _run(self, build: backend.Build) -> float:
        self.backend.restore()
        self.tell("run")
        milliseconds = build.run()
        if not (math.isfinite(milliseconds) and milliseconds >= 0):
            raise Failure("runtime", f"the kernel returned {milliseconds} where milliseconds were expected")
        return milliseconds


def _settled(times: Sequence[float]) -> bool:
    first, second = sorted(times)[:2] if len(times) > 1 else (0.0, math.inf)
    return second <= _SETTLED * first


class _Clock:
    """Milliseconds by part of an evaluation, and the rest that is in no part."""

    def __init__(self) -> None:
        self.milliseconds = {"compile": 0.0, "verification": 0.0, "benchmark": 0.0, "waiting": 0.0}
        self.started = time.perf_counter()

    def part(self, name: str) -> _Part:
        """A context that is counted under `name`."""
        return _Part(self.milliseconds, name)

    def waiting(self, lock: AbstractContextManager[Any]) -> _Waiting:
        """`lock`, with the time to enter it counted as waiting."""
        return _Waiting(self, lock)

    def rest(self) -> float:
        """Milliseconds since the start that are in no part."""
        return max(0.0, (time.perf_counter() - self.started) * 1e3 - sum(self.milliseconds.values()))


class _Part:
    def __init__(self, sums: dict[str, float], name: str) -> None:
        self.sums, self.name = sums, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.sums[self.name] += (time.perf_counter() - self.started) * 1e3


class _Waiting:
    def __init__(self, clock: _Clock, lock: AbstractContextManager[Any]) -> None:
        self.clock, self.lock = clock, lock

    def __enter__(self) -> None:
        with self.clock.part("waiting"):
            self.lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.lock.__exit__(*error)
