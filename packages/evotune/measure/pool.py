"""Worker processes, seen from the parent: hand out configurations, collect outcomes, kill what hangs, replace what died.

Files: every pool has one temporary folder, every worker a folder in it that is its working and temporary folder. All of it
is deleted when the pool closes, whatever happened to the workers, and also when the parent is killed and cannot do it itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from metabench.errors import UserError

from .outcome import Outcome, trimmed
from .task import Task

_START_SECONDS = 120.0  # imports, inputs, reference: seconds on a slow disk
# Kernel Tuner imports torch wherever it is installed, and does without where it is not: a second less per worker, and one
# OpenMP runtime less in a process that measures.
_PROGRAM = "import sys; sys.modules['torch'] = None; from evotune.measure.worker import main; main(int(sys.argv[1]))"

# Waits for the parent to die, which closes its standard input, and deletes the folder; twice, for a compiler still at work.
_JANITOR = 'read -r _; rm -rf "$1"; sleep 2; rm -rf "$1"'


class WorkerDied(Exception):
    """A worker crashed or was killed while it worked; the message says how."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Worker:
    """One worker process and what is known of it."""

    def __init__(self, task: Task, folder: Path, lock: Path) -> None:
        self.task, self.folder = task, folder
        folder.mkdir()
        self.connection, theirs = Pipe()
        with (folder / "stderr").open("wb") as errors, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=folder,
                env=_environment(task, folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self.connection.send((task, str(lock)))
        self.configuration: dict[str, Any] = {}
        self._enter("start")

    def request(self, what: str, *arguments: Any) -> None:
        """Send a request; `receive` gets the answer."""
        self.requested = time.perf_counter()
        self._enter("build")
        self.connection.send((what, *arguments))

    def receive(self) -> tuple[str, Any] | None:
        """The next answer that is not a mere phase, if there is one; `WorkerDied` if it crashed."""
        try:
            what, content = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied(*self._obituary()) from None
        if what == "broken":
            raise UserError(f"kernel {self.task.kernel.name!r} cannot be measured: {content}")
        if what == "phase":
            self._enter(content)
            return None
        return what, content

    def check(self) -> None:
        """Kill it and raise `WorkerDied` if its phase has lasted too long."""
        if time.perf_counter() > self.deadline:
            self.kill()
            raise WorkerDied("timeout", f"killed: its {self.phase} took longer than {self._allowed()} s")

    def kill(self) -> None:
        """Kill it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.entered = time.perf_counter()
        self.deadline = self.entered + self._allowed()

    def _allowed(self) -> float:
        task = self.task
        seconds = {"start": _START_SECONDS, "build": task.build_seconds, "run": task.run_seconds}
        return seconds.get(self.phase, float("inf"))

    def _obituary(self) -> tuple[str, str]:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the pipe is closed: it has ended, or hangs at its end
            self.process.wait(5)
        self.kill()
        code = self.process.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        said = (self.folder / "stderr").read_text(errors="replace").strip()
        status = "compile" if self.phase == "build" else "runtime"
        return status, trimmed(f"{how} during its {self.phase}" + (f": {said}" if said else ""), str(self.folder))


class Pool:
    """Workers for one task. A context manager: leaving it ends the workers and deletes their files."""

    def __init__(self, task: Task, workers: int = 1) -> None:
        if workers < 1:
            raise UserError(f"measuring needs at least one worker, not {workers}")
        self.task, self.size = task, workers
        self.workers: list[Worker] = []
        self.started = 0

    def __enter__(self) -> Pool:
        self._files = tempfile.TemporaryDirectory(prefix="metaopt-", ignore_cleanup_errors=True)
        self.folder = Path(self._files.name)
        janitor = ["/bin/sh", "-c", _JANITOR, "janitor", str(self.folder)]
        nowhere = subprocess.DEVNULL
        self._janitor = subprocess.Popen(
            janitor, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, cwd="/", start_new_session=True
        )
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers.clear()
        self._files.cleanup()
        self._janitor.kill()
        self._janitor.communicate()

    def measure(
        self, configurations: Iterable[Mapping[str, Any]], best: float | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Measure configurations; yields (its place among them, outcome) as they finish.

        Args:
            configurations: taken one by one, when a worker is free: an iterator may end early, say because time is up.

        Raises:
            UserError: the kernel itself is broken: no configuration can be measured.
        """
        waiting = enumerate(configurations)
        busy: dict[int, Worker] = {}
        try:
            while True:
                for place, configuration in islice(waiting, self.size - len(busy)):
                    busy[place] = self._ready(busy.values())
                    busy[place].configuration = dict(configuration)
                    busy[place].request("measure", dict(configuration), best)
                if not busy:
                    return
                for place, outcome in self._finished(busy):
                    del busy[place]
                    if outcome.time is not None:
                        best = min(outcome.time, best or outcome.time)
                    yield place, outcome
        finally:
            for worker in busy.values():  # whoever consumes this has stopped early, and wants nothing of them any more
                self._drop(worker)

    def compare(self, configurations: Sequence[Mapping[str, Any]], rounds: int = 21) -> list[list[float]]:
        """Milliseconds of configurations run in turns by one worker: a list of `rounds` for each.

        Raises:
            WorkerDied: one of them failed, though it was measured before.
        """
        worker = self._ready([])
        worker.request("compare", [dict(c) for c in configurations], rounds)
        try:
            while (answer := self._next(worker)) is None:
                pass
        except WorkerDied:
            self._drop(worker)
            raise
        if answer[0] == "failed":
            raise WorkerDied("runtime", str(answer[1]))
        return answer[1]

    def _ready(self, busy: Iterable[Worker]) -> Worker:
        """A worker that waits for work: an idle one, or a new one."""
        taken = {id(w) for w in busy}
        for worker in [w for w in self.workers if id(w) not in taken]:
            if worker.process.poll() is None:
                return worker
            self._drop(worker)  # something has killed it while it was idle
        worker = Worker(self.task, self.folder / f"worker{self.started}", self.folder / "lock")
        self.started += 1
        self.workers.append(worker)
        while self._next(worker, or_died=True) is None:
            pass
        return worker

    def _next(self, worker: Worker, or_died: bool = False) -> tuple[str, Any] | None:
        try:
            if worker.connection.poll(max(0.0, min(worker.deadline - time.perf_counter(), 3600.0))):
                return worker.receive()
            worker.check()
            return None
        except WorkerDied as death:
            if or_died:
                raise UserError(f"kernel {self.task.kernel.name!r} cannot be measured: {death}") from death
            raise

    def _finished(self, busy: Mapping[int, Worker]) -> list[tuple[int, Outcome]]:
        """Wait for something to happen, and return what is finished then."""
        soonest = min(worker.deadline for worker in busy.values())
        patience = max(0.0, min(soonest - time.perf_counter(), 3600.0))
        ready = wait([worker.connection for worker in busy.values()], patience)
        finished = []
        for place, worker in list(busy.items()):
            try:
                answer = worker.receive() if worker.connection in ready else None
                if answer is None:
                    worker.check()
            except WorkerDied as death:
                self._drop(worker)
                finished.append((place, _died(worker, death)))
                continue
            if answer is not None:
                finished.append((place, answer[1]))
        return finished

    def _drop(self, worker: Worker) -> None:
        worker.kill()
        if worker in self.workers:
            self.workers.remove(worker)


def _died(worker: Worker, death: WorkerDied) -> Outcome:
    """The outcome of a configuration that took its worker with it; what it cost goes to the phase it died in."""
    last = (time.perf_counter() - worker.entered) * 1e3
    before = (worker.entered - worker.requested) * 1e3
    if worker.phase == "build":
        return Outcome(worker.configuration, death.status, compile_time=last, error=str(death))
    # No run has a time, and a cost counts runs and what is outside the benchmark: the lost time is put there.
    return Outcome(worker.configuration, death.status, compile_time=before, framework_time=last, error=str(death))


def _environment(task: Task, folder: Path) -> dict[str, str]:
    """The parent's, with our own import path made absolute, one thread, and temporary files in the worker's folder."""
    threads = str(task.threads)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path),
        "TMPDIR": str(folder),
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONDONTWRITEBYTECODE": "1",
        **task.environment,
    }
