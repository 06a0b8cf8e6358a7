"""Running a program that is not to be trusted against a recording, so that it learns only what it pays for, and
always ends.

The program runs in a process of its own (`evotune._candidate`). The recording stays here: the program asks for one
configuration at a time, and a `metabench.replay.Session` answers by its rules, so that a run in the jail and a run in
this process give the same trace for the same seed. Whatever happens over there ends as an `Outcome`: a trace, and a
failure of a known kind if there was one.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits, Session, Trace
from metabench.space import Space

from . import _wire
from ._run import Answers, Run
from .contract import Failure, FailureKind

_START_SECONDS = 60.0
_PROTECTIONS = {
    "network": "the network",
    "isolation": "your files and processes",
    "subreaper": "leaving processes behind",
    "system calls": "system calls that a search algorithm does not need",
}


@dataclass(frozen=True)
class JailLimits:
    """What one run of a candidate may use.

    Attributes:
        cpu_seconds: of its own code; the limit that should bind, for it does not depend on what else the machine does.
        wall_seconds: the backstop; what answering it takes does not count.
        memory_bytes: beyond what NumPy and the search space take.
        output_bytes: of what it prints, this much is kept.
    """

    cpu_seconds: float = 20.0
    wall_seconds: float = 60.0
    memory_bytes: int = 2 * 2**30
    output_bytes: int = 65_536

    def __post_init__(self) -> None:
        for name in ("cpu_seconds", "wall_seconds", "memory_bytes"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value > 0):
                raise UserError(f"the jail's {name} must be a positive number, not {value}")


@dataclass(frozen=True)
class Outcome:
    """How a run in the jail went.

    Attributes:
        trace: what was evaluated; complete up to the failure, if there was one.
        output: what the candidate printed, cut to the limit.
        seconds, cpu_seconds: wall clock of the run with start and end, and CPU time of the candidate.
    """

    trace: Trace
    failure: Failure | None
    output: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Ending:
    """How a candidate's process ended.

    Attributes:
        output: what the candidate printed, cut to the limit.
        cpu_seconds: CPU time of the candidate.
    """

    failure: Failure | None
    output: str
    cpu_seconds: float


class Jail:
    """One serving process, and the runs it is asked for, one at a time. A context manager; not for several threads at once."""

    _layers = ("audit", "seccomp")  # tests take these off to try those below

    def __init__(self, limits: JailLimits | None = None) -> None:
        self.limits = limits or JailLimits()
        self._server: _Server | None = None

    def __enter__(self) -> Jail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the serving process."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def protection(self) -> dict[str, bool]:
        """What this system enforces.

        Returns:
            "subreaper": no descendant escapes; "network": there is none; "isolation": no files, no sight of other processes, all
            end with the first; "unprivileged": not the user who started it; "system calls": only those of `evotune._seccomp`.
        """
        return dict(self._serving().protection)

    def warn(self) -> None:
        """Start serving, and say what this system does not enforce, if anything: once, before the first candidate."""
        held = self.protection()
        held["network"] |= held["system calls"]  # a process that cannot open a socket has no network
        held["isolation"] |= held["system calls"]  # nor one that cannot open a file any files
        lacking = [text for name, text in _PROTECTIONS.items() if not held[name]]
        if lacking:
            told = "; ".join(lacking)
            message = f"this system does not keep candidates from {told}: run only programs that you trust"
            warnings.warn(message, stacklevel=3)

    def run(
        self,
        source: str,
        optimizer: str,
        recording: Recording,
        limits: Limits,
        seed: int,
        imports: tuple[str, ...] = (),
        session: Session | None = None,
    ) -> Outcome:
        """Run a candidate against a recording.

        Args:
            source, optimizer: the program, and the name of the class in it that is the optimizer.
            limits: the budget, as in `metabench.replay`.
            imports: modules to load while that is still possible: compiled ones are out of reach for an unprivileged
                user.
            session: a fresh session with rules of its own, as for `metabench.replay.replay`; it brings its limits.
        """
        started, session = time.monotonic(), session or Session(recording, limits)
        ending = self.answer(source, optimizer, session, seed, imports)
        name = optimizer if ending.failure is None else ""
        trace = session.trace(name, seed, str(ending.failure or ""), ending.cpu_seconds)
        return Outcome(trace, ending.failure, ending.output, time.monotonic() - started, ending.cpu_seconds)

    def answer(self, source: str, optimizer: str, session: Answers, seed: int, imports: tuple[str, ...] = ()) -> Ending:
        """Run a candidate on whatever answers it; arguments as for `run`. What `session.ask` raises ends both."""
        run = Run(self.limits, session, source)
        server = self._serving()
        try:
            server.start(run, optimizer, seed, imports, self._layers)
            run.serve()
            ended = server.end(run)
        except (OSError, EOFError, ValueError):  # the serving process is gone: the next run gets a new one
            self.close()
            ended = {"code": None, "cpu": 0.0, "left": 0}
            run.fail(FailureKind.CRASH, "the process that serves candidates ended")
        except BaseException:  # ctrl-C in the middle of a run: the candidate must not stay behind
            self.close()
            raise
        finally:
            run.close()
        if ended["left"]:
            warnings.warn(f"{ended['left']} processes of a candidate could not be ended", RuntimeWarning, stacklevel=2)
        return Ending(run.verdict(ended["code"]), run.printed(), ended["cpu"])

    def _serving(self) -> _Server:
        if self._server is None:
            self._server = _Server()
        return self._server


class _Server:
    """The parent's end of the serving process."""

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            raise UserError(
                "candidates run in forked processes, which this system does not have; Linux or macOS is needed"
            )
        self._scratch = tempfile.mkdtemp(prefix="evotune-")
        Path(self._scratch).chmod(0o755)
        ours, theirs = socket.socketpair()
        self._channel = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-m", "evotune._candidate", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                cwd=self._scratch, env=_environment(), start_new_session=True,
            )  # fmt: skip
        self._finalizer = weakref.finalize(self, _stop, self._process, ours, self._scratch)
        ours.settimeout(_START_SECONDS)
        try:
            hello = _wire.receive(ours)
        except (OSError, EOFError, ValueError):
            hello = None
        if hello is None:
            self.close()
            raise RuntimeError("the process that serves candidates did not start")
        self.protection: dict[str, bool] = {k: v for k, v in hello[0].items() if isinstance(v, bool)}
        self._spaces: list[Space] = []

    def start(self, run: Run, optimizer: str, seed: int, imports: tuple[str, ...], layers: tuple[str, ...]) -> None:
        space = self._space(run.session.space)
        message = {
            "op": "run", "space": space, "source": run.source, "class": optimizer, "seed": seed,
            "imports": list(imports), "memory": run.limits.memory_bytes, "layers": list(layers),
            "cpu": max(1, math.ceil(run.limits.cpu_seconds)),
        }  # fmt: skip
        _wire.send(self._channel, message, descriptors=run.descriptors())
        run.started(self._answer()["pid"])

    def end(self, run: Run) -> dict[str, Any]:
        _wire.send(self._channel, {"op": "end", "exited": run.exited})
        return self._answer()

    def close(self) -> None:
        self._finalizer()

    def _answer(self) -> dict[str, Any]:
        frame = _wire.receive(self._channel)
        if frame is None:
            raise EOFError("the serving process closed the channel")
        return frame[0]

    def _space(self, space: Space) -> int:
        """The number of a space over there; it is sent the first time."""
        for number, known in enumerate(self._spaces):
            if known is space:
                return number
        table, number = space.table, len(self._spaces)
        message = {
            "op": "space", "id": number, "names": space.names, "values": space.values,
            "shape": table.shape, "dtype": table.dtype.str,
        }  # fmt: skip
        _wire.send(self._channel, message, table.tobytes())
        self._spaces.append(space)
        return number


def _stop(process: subprocess.Popen[bytes], channel: socket.socket, scratch: str) -> None:
    """Close the channel, upon which the serving process clears up and ends; kill it if it does not."""
    channel.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stderr:
        process.stderr.close()
    shutil.rmtree(scratch, ignore_errors=True)


def _environment() -> dict[str, str]:
    """What a candidate sees of the environment: no key, no home; one thread for linear algebra, and hashes that do not vary."""
    packages = {
        str(Path(__file__).resolve().parents[1]),
        str(Path(sys.modules["metabench"].__path__[0]).resolve().parent),
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(sorted(packages)),
        **threads,
    }
