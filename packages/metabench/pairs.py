"""One optimizer on one recording: all its runs, under every estimator's rules. The unit that scoring hands to processes."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from . import atm, registry
from .baseline import baseline
from .errors import UserError
from .recording import Recording
from .replay import Limits, Optimizer, Session, Trace, replay

Factory = Callable[[], Optimizer]
ESTIMATORS = ("direct", "atm")


@dataclass(frozen=True)
class Job:
    """What is to be run.

    Attributes:
        factory: makes a fresh optimizer for every run; or its name in the registry.
        seeds: one run each.
        estimators: of `ESTIMATORS`; each has its own budget, so each takes runs of its own.
        cpu: the optimizer's own CPU time counts on the clock of `direct`.
    """

    name: str
    factory: Factory | str
    recording: str
    seeds: tuple[int, ...]
    estimators: tuple[str, ...]
    cpu: bool = False


@dataclass
class Result:
    """What came of a job.

    Attributes:
        traces: the runs under `direct`, one per seed.
        atm_traces: those under `atm`.
        atm_curve: float64 (1000,), the progress curve that `atm` makes of its runs; None if there is none, see `atm_reason`.
        atm_deviations: float64 (2000,), resampled deviations of its P.
        failure: why there are no runs, of an optimizer that runs elsewhere and failed there.
    """

    traces: list[Trace] = field(default_factory=list)
    atm_traces: list[Trace] = field(default_factory=list)
    atm_curve: np.ndarray | None = None
    atm_deviations: np.ndarray | None = None
    atm_reason: str = ""
    failure: str = ""


class RunsElsewhere(Protocol):
    """A factory that does its optimizer's runs itself, as `metabench.replay.replay` would: in another process, say.

    What fails there is a result, the trace's `error`; of an optimizer in this process it is the reader's to mend.
    """

    def replay(self, recording: Recording, seed: int, name: str, session: Session) -> Trace:
        """One run, answered by the session."""
        ...


class _Failed(Exception):
    """A run that failed elsewhere; the message says how."""


def seeds_of(recording: str, seed: int, repeats: int) -> tuple[int, ...]:
    """Seeds of an optimizer's runs on a recording: equal for all optimizers, so that they are compared in pairs, and different
    on every recording.

    The same seeds everywhere would start an optimizer with the same configurations on each device of a kernel, and devices
    rank them alike: its luck would repeat itself (random search on convolution, A4000 and A6000: correlation of P 0.8), and
    the mean over the spaces would be less certain than its interval says.
    """
    first = seed + zlib.crc32(recording.encode())
    return tuple(range(first, first + repeats))


def factory_of(optimizer: Factory | str) -> Factory:
    """The factory itself, by name where it is named.

    Raises:
        UserError: an unknown name, or no factory: an optimizer itself, which is called with `func` and `searchspace`.
    """
    if isinstance(optimizer, str):
        return registry.Named(optimizer)
    try:
        needed = [p for p in inspect.signature(optimizer).parameters.values() if p.default is p.empty and p.kind < 2]
    except (TypeError, ValueError):  # a builtin without a signature, or nothing that can be called
        needed = []
    if not callable(optimizer) or needed:
        raise UserError(
            f"{optimizer!r} is no factory: give something that is called without arguments and returns a fresh optimizer, "
            "such as its class or `lambda: optimizer`"
        )
    return optimizer


def run(job: Job, recording: Recording) -> Result:
    """All runs of one job.

    The first run that fails elsewhere (`RunsElsewhere`) is the whole result.

    Raises:
        UserError: the optimizer raised in this process; the message says where and what.
    """
    try:
        return _run(job, recording)
    except _Failed as failed:
        return Result(failure=str(failed))


def _run(job: Job, recording: Recording) -> Result:
    make, result = factory_of(job.factory), Result()
    if "direct" in job.estimators:
        limits = Limits(seconds=baseline(recording).end)
        result.traces = [
            _one(job, make, recording, seed, Session(recording, limits, cpu=job.cpu)) for seed in job.seeds
        ]
    if "atm" in job.estimators:
        ax = atm.axis(recording)
        result.atm_traces = [_one(job, make, recording, seed, ax.session()) for seed in job.seeds]
        try:
            result.atm_curve = atm.performance(result.atm_traces, ax, job.seeds[0])
            result.atm_deviations = atm.resampled(result.atm_traces, ax)
        except atm.NotScorable as error:
            result.atm_reason = str(error)
    return result


def _one(job: Job, make: Factory, recording: Recording, seed: int, session: Session) -> Trace:
    where = f"on {recording.name} with seed {seed}"
    if hasattr(make, "replay"):
        trace = make.replay(recording, seed, job.name, session)
        if trace.error:
            raise _Failed(f"{trace.error} ({where})")
        return trace
    trace = replay(make(), recording, seed=seed, name=job.name, session=session)
    if trace.error:
        raise UserError(f"optimizer {job.name!r} failed {where}: {trace.error}")
    return trace


def run_all(jobs: Sequence[Job], recordings: Mapping[str, Recording], workers: int) -> Iterator[tuple[Job, Result]]:
    """Results as they come: in this process and in order for one worker, else from `workers` processes.

    Raises:
        UserError: an optimizer or a space that cannot be sent to another process, such as a lambda.
    """
    if workers == 1:
        for job in jobs:
            yield job, run(job, recordings[job.recording])
        return
    _check_sendable(jobs, recordings)
    context = multiprocessing.get_context("spawn")  # no threads or locks of this process come along
    with ProcessPoolExecutor(workers, context, initializer=_receive, initargs=(dict(recordings),)) as pool:
        pending = {pool.submit(_run_received, job): job for job in jobs}
        try:
            for future in as_completed(pending):
                yield pending[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _check_sendable(jobs: Sequence[Job], recordings: Mapping[str, Recording]) -> None:
    things = {f"optimizer {job.name!r}": job.factory for job in jobs}
    for what, thing in {**things, **{f"recording {n!r}": r.space for n, r in recordings.items()}}.items():
        try:
            pickle.dumps(thing)
        except Exception as error:
            raise UserError(
                f"{what} cannot be sent to another process ({error}); score with workers=1, or name it: "
                "an optimizer's registered name, a class or function of a module"
            ) from error


_received: dict[str, Recording] = {}


def _receive(recordings: dict[str, Recording]) -> None:
    _received.update(recordings)


def _run_received(job: Job) -> Result:
    return run(job, _received[job.recording])
