"""The worker process: measures what it is sent, one configuration at a time.

It is a process of its own because compiled kernels crash and hang. It runs in a private folder that the parent deletes, in a
session of its own so that the parent can kill it together with a compiler at work, and dies when the parent does. Only one
worker times at a time: `flock` is the lock, since the system lifts it from a worker that dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import signal
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from metabench.errors import UserError

from .bench import Bench, Failure
from .task import Task

_PR_SET_PDEATHSIG = 1


def main(descriptor: int) -> None:
    """Serve requests on a pipe: first the task and the lock's path, then ("measure" | "compare", arguments...)."""
    _die_with_parent()
    connection = Connection(descriptor)
    task, lock = connection.recv()
    try:
        bench = _bench(task, Path(lock), connection)
    except (Exception, SystemExit) as error:
        connection.send(("broken", str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"))
        return
    connection.send(("ready", None))
    with contextlib.suppress(EOFError):
        while True:
            what, *arguments = connection.recv()
            try:
                connection.send(("done", getattr(bench, what)(*arguments)))
            except Failure as failure:
                connection.send(("failed", str(failure)))


def _bench(task: Task, lock: Path, connection: Connection) -> Bench:
    @contextlib.contextmanager
    def exclusive() -> Iterator[None]:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    return Bench(task, exclusive, lambda phase: connection.send(("phase", phase)))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
