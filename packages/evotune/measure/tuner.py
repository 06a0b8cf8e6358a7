"""Tune a kernel on this machine: an optimizer chooses configurations, each is built, checked in full and timed.

The default configuration is measured first and the optimizer gets the rest of the budget. At the end the fastest few and the
default are run in turns, and the fastest of those is the result: the least of many noisy times is too good to be true, and
minutes lie between it and the default's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metabench import provenance
from metabench.errors import UserError
from metabench.kernel import Kernel, cpu_device, find
from metabench.replay import Limits, Stop, global_seed
from metabench.space import Space

from . import default, tuned
from .ab import Comparison, compare
from .device import compiler_version
from .drive import Optimizer, drive, strategy_of
from .interrupt import Interrupted, interruptible
from .outcome import Outcome
from .pool import Pool, WorkerDied
from .runner import MeasuringRunner
from .t4 import write_t4
from .task import Task

Progress = Callable[[int, int, Outcome, float | None], None]
"""Called after each evaluation with (evaluations so far, at most, its outcome, least milliseconds so far)."""


@dataclass(frozen=True)
class Tuning:
    """What tuning found.

    Attributes:
        kernel, device, backend, shape_class, dtype: what the configuration holds for.
        flags: compiler flags.
        configuration: the fastest, {parameter: value}.
        time, default_time: milliseconds of it and of the default configuration, which is what the source takes with these
            flags: medians of runs in turns, or, if there was no such comparison, the least times of their evaluations.
            `default_time` is None if the default fails.
        speedup: default's time by the fastest's: (median over the rounds of the comparison, lower and upper quartile); None
            without a comparison.
        tuner, seed: who chose, and its seed.
        evaluations, calls, illegal, revisits: as in `metabench.replay.Trace`; the default is one of the evaluations.
        ended: "evaluations" | "seconds" | "exhausted" | "calls" | "returned" | "interrupted" | "error".
        error: what the optimizer raised, if it ended so.
        failures: {kind: number} of configurations that have no time.
        outcomes: everything that was measured, in order.
        versions: of what took part, the compiler among them.
        files: what was written: {"t4": path, "tuned": path}.
    """

    kernel: str
    device: str
    backend: str
    shape_class: str
    dtype: str
    flags: tuple[str, ...]
    configuration: dict[str, Any]
    time: float
    default_time: float | None
    speedup: tuple[float, float, float] | None
    tuner: str
    seed: int
    evaluations: int
    calls: int
    illegal: int
    revisits: int
    ended: str
    error: str
    failures: dict[str, int]
    outcomes: tuple[Outcome, ...]
    versions: dict[str, str]
    files: dict[str, Path] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        """The tuned entry, for JSON; the keys that must match are `tuned.KEYS`."""
        names = (*tuned.KEYS, "configuration", "time_ms", "default_time_ms", "versions", "tuner", "evaluations", "seed")
        values = {"time_ms": self.time, "default_time_ms": self.default_time}
        return {name: values[name] if name in values else getattr(self, name) for name in names}


def tune(
    kernel: Kernel | str,
    optimizer: Optimizer,
    *,
    evaluations: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    device: str | None = None,
    flags: tuple[str, ...] | None = None,
    folder: Path | str | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    workers: int = 1,
    finalists: int = 3,
    rounds: int = 21,
    progress: Progress | None = None,
    **task_options: Any,
) -> Tuning:
    """Let an optimizer choose configurations of a kernel until the budget is spent.

    Args:
        optimizer: a name (the zoo's, Kernel Tuner's), a callable `optimizer(func, searchspace)`, the path of a .py file,
            which runs in this process, or a `JailedTuner` of one.
        evaluations: configurations measured at most, failures and the default among them; a revisit is free.
        seconds: wall clock for them, with their builds; the evaluations that are under way then are finished.
        device, flags: as in `record`; without either, the kernel's own flags.
        folder: where t4.json and tuned/DEVICE.json are written; the latter from the first correct evaluation on, so
            that even a killed run leaves its best. None writes nothing.
        name: of the optimizer, for the entry.
        options: `strategy_options` for one of Kernel Tuner's strategies.
        workers: processes that build at the same time where an optimizer asks for several configurations at once.
        finalists, rounds: how many of the fastest are compared with the default at the end, and how often.
        task_options: of `Task`: size, repeats, cutoff (default 5), compiler, build_seconds, run_seconds, ...

    Raises:
        UserError: no budget, unknown names, no compiler, a kernel that cannot be measured, or nothing that works.
    """
    kernel = find(kernel) if isinstance(kernel, str) else kernel
    _check(evaluations, seconds, {"seed": (seed, 0), "finalists": (finalists, 0), "rounds": (rounds, 1)})
    strategy = strategy_of(optimizer)
    task = Task.of(kernel, device, flags, **{"cutoff": 5.0, **task_options})
    space = Space.from_t1(kernel.space_definition())
    space.defaults |= default.of_source(task, space)
    job = _Job(task, space, name or _name_of(optimizer), seed, Path(folder) if folder else None)
    with Pool(task, workers) as pool:
        runner = MeasuringRunner(
            pool, space, Limits(seconds, evaluations), lambda outcome: job.note(runner, outcome, progress)
        )
        comparison = None
        try:
            with interruptible():
                ended, error = _search(strategy, runner, options, seed)
                comparison = _compare(pool, runner, finalists, rounds)
        except Interrupted:
            ended, error = "interrupted", ""
    return job.finish(runner, ended, error, comparison)


def _check(evaluations: int | None, seconds: float | None, numbers: Mapping[str, tuple[Any, int]]) -> None:
    """Before anything is built: a budget, and whole numbers {name: (value, the least that is allowed)}."""
    if evaluations is None and seconds is None:
        raise UserError("tuning needs a budget: evaluations, seconds or both")
    if evaluations is not None:
        numbers = {"a budget in evaluations": (evaluations, 1), **numbers}
    for name, (value, least) in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserError(f"{name} must be a whole number of at least {least}, not {value!r}")
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise UserError(f"a budget in seconds must be a positive number, not {seconds!r}")


def _search(strategy: Any, runner: MeasuringRunner, options: Mapping[str, Any] | None, seed: int) -> tuple[str, str]:
    """Measure the default, then whatever the optimizer asks for: (how it ended, what it raised)."""
    runner.measure([row for row in [_default_row(runner.space)] if row is not None])
    try:
        with global_seed(seed):
            drive(strategy, runner, options, seed)
    except Stop:
        return runner.ended, ""
    except UserError:
        raise
    except Exception as raised:
        return "error", f"{type(raised).__name__}: {raised}"
    return runner.over() or "returned", ""


def _compare(pool: Pool, runner: MeasuringRunner, finalists: int, rounds: int) -> Comparison | None:
    """The default and the fastest few in turns; None if there is nothing to compare, or one of them fails now."""
    standard = _default(runner)
    fastest = [o.configuration for o in runner.ranking()[:finalists]]
    if standard is None or not standard.correct or not finalists:
        return None
    try:
        return compare(pool, [standard.configuration, *(c for c in fastest if c != standard.configuration)], rounds)
    except WorkerDied as death:
        warnings.warn(f"the final comparison was given up: {death}", stacklevel=3)
        return None


def _default_row(space: Space) -> int | None:
    return space.find(tuple(space.defaults.get(name) for name in space.names))


def _default(runner: MeasuringRunner) -> Outcome | None:
    row = _default_row(runner.space)
    return None if row is None else runner.outcomes.get(row)


def _name_of(optimizer: Optimizer) -> str:
    if isinstance(optimizer, str):
        return Path(optimizer).stem if optimizer.endswith(".py") else optimizer
    return getattr(optimizer, "__name__", type(optimizer).__name__)


@dataclass
class _Job:
    """What is the same for every result of one call of `tune`."""

    task: Task
    space: Space
    tuner: str
    seed: int
    folder: Path | None

    def note(self, runner: MeasuringRunner, outcome: Outcome, progress: Progress | None) -> None:
        """After each evaluation: keep a new best on disk, tell who listens."""
        if outcome is runner.best and self.folder:
            tuned.keep(self._result(runner, "running", "", None).entry(), self._tuned_path())
        if progress:
            progress(len(runner.outcomes), runner.most, outcome, runner.best_time)

    def finish(self, runner: MeasuringRunner, ended: str, error: str, comparison: Comparison | None) -> Tuning:
        """Write the files and return the result; `UserError` if no configuration works."""
        files = {}
        if self.folder:
            files["t4"] = write_t4(self.folder / "t4.json", runner.outcomes.values(), self.space)
        result = self._result(runner, ended, error, comparison)
        if self.folder:
            files["tuned"] = tuned.keep(result.entry(), self._tuned_path())
        return replace(result, files=files)

    def _result(self, runner: MeasuringRunner, ended: str, error: str, comparison: Comparison | None) -> Tuning:
        best, standard = runner.best, _default(runner)
        if best is None or best.time is None:
            raise UserError(self._nothing_works(runner))
        configuration, time, speedup = best.configuration, best.time, None
        default_time = standard.time if standard else None
        if comparison:
            place = comparison.best
            configuration, time = comparison.configurations[place], comparison.milliseconds(place)
            default_time, speedup = comparison.milliseconds(0), comparison.speedup(place)
        reference = self.task.kernel.reference()
        return Tuning(
            kernel=self.task.kernel.name,
            device=cpu_device(self.task.flags),
            backend=self.task.backend,
            shape_class=getattr(reference, "SHAPE_CLASS", "any"),
            dtype=getattr(reference, "DTYPE", "float32"),
            flags=self.task.flags,
            configuration=configuration,
            time=time,
            default_time=default_time,
            speedup=speedup,
            tuner=self.tuner,
            seed=self.seed,
            evaluations=len(runner.outcomes),
            calls=runner.calls,
            illegal=runner.illegal,
            revisits=runner.revisits,
            ended=ended,
            error=error,
            failures=runner.failures(),
            outcomes=tuple(runner.outcomes.values()),
            versions={**provenance.versions(), "compiler": compiler_version(self.task.compiler)},
        )

    def _nothing_works(self, runner: MeasuringRunner) -> str:
        tried = len(runner.outcomes)
        if not tried:
            return f"kernel {self.task.kernel.name!r}: the run ended before a configuration was measured"
        first = next(o.error for o in runner.outcomes.values())
        return f"kernel {self.task.kernel.name!r}: none of {tried} configurations works; the first says: {first}"

    def _tuned_path(self) -> Path:
        assert self.folder is not None
        return self.folder / "tuned" / f"{cpu_device(self.task.flags)}.json"
