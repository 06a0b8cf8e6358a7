"""Where runs of candidates take place: in jails on this machine, or as jobs of a cluster. Both take a `Play` and give a future.

A play is one run: a candidate on a recording with a seed. Plays of one candidate and of several go on side by side; their results
depend on neither order nor place.
"""

from __future__ import annotations

import queue
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from metabench.errors import UserError, choose
from metabench.recording import Recording
from metabench.replay import Limits, Session

from .contract import Failure, FailureKind
from .jail import Jail, JailLimits, Outcome


@dataclass(frozen=True)
class Play:
    """One run of a candidate.

    Attributes:
        source, optimizer: the program, and the class in it that is the optimizer.
        limits: the budget.
        imports: compiled modules to load beforehand.
        every_request: whether the trace keeps revisits too (`Trace.asks`).
    """

    source: str
    optimizer: str
    recording: Recording
    limits: Limits
    seed: int
    imports: tuple[str, ...] = ()
    every_request: bool = False

    def run(self, jail: Jail) -> Outcome:
        """Run it."""
        session = Session(self.recording, self.limits, overrun=True) if self.every_request else None
        return jail.run(self.source, self.optimizer, self.recording, self.limits, self.seed, self.imports, session)


class Launcher(Protocol):
    """What every launcher is."""

    def prepare(self) -> None:
        """Start what plays need, and warn of what is not enforced here; may be left out."""

    def submit(self, play: Play) -> Future[Outcome]:
        """Run a play some time soon."""
        ...

    def close(self) -> None:
        """Wait for what is under way, drop what is not, end all processes."""


class Local:
    """`workers` jails on this machine, each a process tree of its own, each with a thread here that answers it."""

    def __init__(self, workers: int, limits: JailLimits, folder: Path | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="play")
        self._all = [Jail(limits) for _ in range(workers)]
        self._free: queue.SimpleQueue[Jail] = queue.SimpleQueue()
        for jail in self._all:
            self._free.put(jail)

    def prepare(self) -> None:
        """Start the first jail."""
        self._all[0].warn()

    def submit(self, play: Play) -> Future[Outcome]:
        """Run a play in the first jail that is free."""
        return self._pool.submit(self._run, play)

    def _run(self, play: Play) -> Outcome:
        jail = self._free.get()
        try:
            return play.run(jail)
        finally:
            self._free.put(jail)

    def close(self) -> None:
        """End the serving processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for jail in self._all:
            jail.close()


class Submitit:
    """Every play is a job, by submitit: of Slurm, or (cluster=local) of processes on this machine.

    The jail is where the job runs. A job takes seconds to start, so this is for candidates that take long.

    Args:
        workers: jobs at a time.
        folder: where submitit keeps its files, seen by all machines; deleted at the end unless a job was lost.
        cluster: "slurm", "local" or "debug"; None: Slurm where there is one.
        parameters: submitit's, such as timeout_min, slurm_partition, cpus_per_task.
    """

    RETRIES = 2  # a node that fails is not the candidate's fault

    def __init__(
        self,
        workers: int,
        limits: JailLimits,
        folder: Path | None = None,
        cluster: str | None = None,
        **parameters: Any,
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise UserError("launcher=submitit needs submitit: pip install 'metaopt-toolkit[slurm]'") from error
        self._folder, self._limits, self._lost = Path(folder or "submitit"), limits, False
        self._errors = submitit.core.utils.UncompletedJobError
        try:
            self._executor = submitit.AutoExecutor(self._folder, cluster)
            self._executor.update_parameters(**{"timeout_min": 30, "name": "evotune", **parameters})
        except (RuntimeError, NameError, ValueError, TypeError) as error:
            raise UserError(f"launcher=submitit cannot be used so: {error}") from error
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="job")

    def prepare(self) -> None:
        """Nothing: jobs find out where they run."""

    def submit(self, play: Play) -> Future[Outcome]:
        """Hand a play to the cluster."""
        return self._pool.submit(self._run, play)

    def _run(self, play: Play) -> Outcome:
        reason = ""
        for _ in range(1 + self.RETRIES):
            try:
                return self._executor.submit(_alone, play, self._limits).result()
            except self._errors as error:
                self._lost, reason = True, str(error).strip().splitlines()[0]
        failure = Failure(FailureKind.CRASH, f"its job was lost {1 + self.RETRIES} times: {reason}")
        trace = Session(play.recording, play.limits).trace(play.optimizer, play.seed, str(failure))
        return Outcome(trace, failure, "", 0.0, 0.0)

    def close(self) -> None:
        """Wait for the jobs that were handed over."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if not self._lost:
            shutil.rmtree(self._folder, ignore_errors=True)


def _alone(play: Play, limits: JailLimits) -> Outcome:
    """A play in a jail of its own: what a job runs."""
    with Jail(limits) as jail:
        return play.run(jail)


_LAUNCHERS: dict[str, Callable[..., Launcher]] = {"local": Local, "submitit": Submitit}


def make(name: str, workers: int, limits: JailLimits, folder: Path | None = None, **options: Any) -> Launcher:
    """A launcher by name.

    Args:
        workers: plays at a time.
        limits: of the jail, for one run.
        folder: where a launcher may keep files.
        options: the launcher's own.

    Raises:
        UserError: no such launcher (the allowed ones are listed), or an option that it does not take.
    """
    choose(name, _LAUNCHERS, "launcher")
    try:
        return _LAUNCHERS[name](workers, limits, folder, **options)
    except TypeError as error:
        raise UserError(f"launcher {name!r} cannot be made with {', '.join(options)}: {error}") from error
