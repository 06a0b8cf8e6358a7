"""Running a program that is not to be trusted against a recording, so that it learns only what it pays for, and
always ends.

The program runs in a process of its own (`evotune._candidate`). The recording stays here: the program asks for one
configuration at a time, and a `metabench.replay.Session` answers by its rules, so that a run in the jail and a run in
this process give the same trace for the same seed. Whatever happens over there ends as an `Outcome`: a trace, and a
failure of a known kind if there was one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import shutil
import signal
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
from metabench.replay import Limits, Session, Stop, Trace
from metabench.space import Space

from . import _wire
from .contract import Failure, FailureKind, line_of

_TICK = 0.1  # seconds between looks at the clock while a candidate is silent
_REFUSALS = 100  # how often a candidate may ask after the end before it counts as not returning
_START_SECONDS = 60.0
_HANG = re.compile(rf'File "{_wire.SOURCE_NAME}", line (\d+)')
_EXIT_SIGNALS = {signal.SIGXCPU: FailureKind.TIMEOUT, signal.SIGKILL: FailureKind.MEMORY}


@dataclass(frozen=True)
class JailLimits:
    """What one run of a candidate may use.

    Attributes:
        cpu_seconds: of its own code; the limit that should bind, for it does not depend on what else the machine does.
        wall_seconds: the backstop.
        memory_bytes: beyond what NumPy and the search space take.
        output_bytes: of what it prints, this much is kept.
    """

    cpu_seconds: float = 20.0
    wall_seconds: float = 60.0
    memory_bytes: int = 2 * 2**30
    output_bytes: int = 65_536

    def __post_init__(self) -> None:
        for name in ("cpu_seconds", "wall_seconds", "memory_bytes"):
            if not getattr(self, name) > 0:
                raise UserError(f"the jail's {name} must be positive, not {getattr(self, name)}")


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


class Jail:
    """One serving process, and the runs it is asked for, one at a time. A context manager; not for several threads at once."""

    _audited = True  # tests take this layer off to try those below

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
            end with the first; "unprivileged": not the user who started it.
        """
        return dict(self._serving().protection)

    def run(
        self,
        source: str,
        optimizer: str,
        recording: Recording,
        limits: Limits,
        seed: int,
        imports: tuple[str, ...] = (),
    ) -> Outcome:
        """Run a candidate against a recording.

        Args:
            source, optimizer: the program, and the name of the class in it that is the optimizer.
            limits: the budget, as in `metabench.replay`.
            imports: modules to load while that is still possible: compiled ones are out of reach for an unprivileged
                user.
        """
        started = time.monotonic()
        run = _Run(self.limits, recording, limits, source)
        server = self._serving()
        try:
            server.start(run, optimizer, seed, imports, self._audited)
            run.serve()
            ended = server.end(run)
        except (OSError, EOFError, ValueError):  # the serving process is gone: the next run gets a new one
            self.close()
            ended = {"code": None, "cpu": 0.0, "left": 0}
            run.fail(FailureKind.CRASH, "the process that serves candidates ended")
        finally:
            run.close()
        if ended["left"]:
            warnings.warn(f"{ended['left']} processes of a candidate could not be ended", RuntimeWarning, stacklevel=2)
        failure = run.verdict(ended["code"])
        name = optimizer if failure is None else ""
        trace = run.session.trace(name, seed, str(failure or ""), ended["cpu"])
        return Outcome(trace, failure, run.printed(), time.monotonic() - started, ended["cpu"])

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

    def start(self, run: _Run, optimizer: str, seed: int, imports: tuple[str, ...], audited: bool) -> None:
        message = {
            "op": "run", "space": self._space(run.recording.space), "source": run.source, "class": optimizer, "seed": seed,
            "imports": list(imports), "memory": run.limits.memory_bytes, "audited": audited,
            "cpu": max(1, math.ceil(run.limits.cpu_seconds)),
        }  # fmt: skip
        _wire.send(self._channel, message, descriptors=run.descriptors())
        run.started(self._answer()["pid"])

    def end(self, run: _Run) -> dict[str, Any]:
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


class _Run:
    """The parent's side of one run: it answers, watches the clock, keeps what is printed, and decides what happened."""

    def __init__(self, limits: JailLimits, recording: Recording, budget: Limits, source: str) -> None:
        self.limits, self.recording, self.source = limits, recording, source
        self.session = Session(recording, budget)
        self.exited = False
        self._failure: Failure | None = None
        self._report: bytes | None = None
        self._asked, self._output = bytearray(), bytearray()
        self._refusals = 0
        self._asking, self._ask_end = os.pipe()
        self._answer_end, self._answers = os.pipe()
        self._printing, self._print_end = os.pipe()
        for descriptor in (self._asking, self._answers, self._printing):
            os.set_blocking(descriptor, False)  # whatever a candidate does with its ends must not hold us up
        self._handle = -1
        self._deadline = math.inf

    def descriptors(self) -> tuple[int, int, int]:
        """The candidate's ends."""
        return self._ask_end, self._answer_end, self._print_end

    def started(self, pid: int) -> None:
        """The candidate runs: its ends of the pipes are its own from now on."""
        for descriptor in self.descriptors():
            os.close(descriptor)
        self._ask_end = self._answer_end = self._print_end = -1
        with contextlib.suppress(OSError, AttributeError):  # it may be over already; only Linux has such handles
            self._handle = os.pidfd_open(pid)
        self._deadline = time.monotonic() + self.limits.wall_seconds

    def close(self) -> None:
        ends = (self._asking, self._answers, self._printing, self._handle, *self.descriptors())
        for descriptor in ends:
            if descriptor >= 0:
                os.close(descriptor)

    def serve(self) -> None:
        """Answer until the candidate has reported, ended, or run out of time."""
        poll = select.poll()
        for descriptor in (self._asking, self._printing, self._handle):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        while self._report is None and self._failure is None:
            if time.monotonic() > self._deadline:
                self._hangs(f"it was still running after {self.limits.wall_seconds:g} s")
                break
            ready = dict(poll.poll(_TICK * 1000))
            if self._asking in ready:
                if not self._read_asked():
                    poll.unregister(self._asking)
                    self.exited = True
                    break
            elif self._handle in ready:
                self.exited = True
                break
            if self._printing in ready and not self._read_printed() and ready[self._printing] & select.POLLHUP:
                poll.unregister(self._printing)  # it closed its output; the poll would say so for ever
        for _ in range(64):  # what was printed last
            if not self._read_printed():
                break

    def _read_asked(self) -> bool:
        """Take in what was asked and answer it; False at the end of the pipe."""
        try:
            data = os.read(self._asking, 65_536)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._asked += data
        while len(self._asked) >= _wire.ASK.size and self._failure is None:
            (row,) = _wire.ASK.unpack_from(self._asked)
            if row == _wire.REPORT:
                self._read_report()
                break
            del self._asked[: _wire.ASK.size]
            self._answer(row)
        return True

    def _answer(self, row: int) -> None:
        known = 0 <= row < len(self.recording.space)
        verdict, cost = _wire.GO, math.inf
        try:
            cost = self.session.ask(self.recording.space.configurations[row] if known else ())
        except Stop:
            verdict = _wire.END
            self._refusals += 1
        try:
            os.write(self._answers, _wire.ANSWER.pack(cost, self.session.spent_fraction, verdict))
        except BrokenPipeError:
            return  # it is over; the poll will say so
        except BlockingIOError:
            self.fail(FailureKind.INTERFACE, "it asked without reading the answers")
        if self._refusals > _REFUSALS:
            self._hangs("it went on after its budget was spent: the exception that ends a run must not be caught")

    def _read_report(self) -> None:
        head = _wire.ASK.size + _wire.LENGTH.size
        if len(self._asked) < head:
            return
        (length,) = _wire.LENGTH.unpack_from(self._asked, _wire.ASK.size)
        if length > _wire.LONGEST_REPORT:
            self.fail(FailureKind.CRASH, "it sent a report that is none")
        elif len(self._asked) >= head + length:
            self._report = bytes(self._asked[head : head + length])

    def _read_printed(self) -> bool:
        """Take in what was printed; False when there is no more, or none yet."""
        try:
            data = os.read(self._printing, 65_536)
        except BlockingIOError:
            return False
        self._output += data[: max(0, self.limits.output_bytes - len(self._output))]
        return bool(data)

    def _hangs(self, message: str) -> None:
        """Ask the candidate where it is, and fail it."""
        del self._output[self.limits.output_bytes // 2 :]  # room for its answer
        line = None
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._handle, signal.SIGUSR1)
                end = time.monotonic() + 0.5
                while time.monotonic() < end and line is None:
                    if select.select([self._printing], [], [], 0.05)[0] and not self._read_printed():
                        break
                    found = _HANG.findall(self.printed())
                    line = int(found[0]) if found else None
        self.fail(FailureKind.TIMEOUT, message, line)

    def fail(self, kind: FailureKind, message: str, line: int | None = None) -> None:
        """Settle what happened; the first to say so is right."""
        if self._failure is None:
            text = line_of(self.source, line)
            self._failure = Failure(kind, message, line if text else None, text)

    def printed(self) -> str:
        """What the candidate printed."""
        return self._output.decode(errors="replace")

    def verdict(self, code: int | None) -> Failure | None:
        """What happened, given how the process ended (None: it was ended)."""
        if self._failure is None and self._report is not None:
            self._judge_report()
        elif self._failure is None:
            self._judge_exit(code)
        if self._failure is None:
            self._judge_trace()
        return self._failure

    def _judge_report(self) -> None:
        try:
            report = json.loads(self._report or b"")
            if report:
                line = report.get("line")
                self.fail(FailureKind(report["kind"]), str(report["message"]), line if isinstance(line, int) else None)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.fail(FailureKind.CRASH, "it sent a report that is none")

    def _judge_exit(self, code: int | None) -> None:
        found = _HANG.findall(self.printed())  # what faulthandler wrote on the way down
        line = int(found[0]) if found else None
        if code is not None and code < 0:
            kind = _EXIT_SIGNALS.get(signal.Signals(-code), FailureKind.CRASH)
            reason = {FailureKind.TIMEOUT: f"it used up its {self.limits.cpu_seconds:g} CPU seconds"}.get(kind)
            self.fail(kind, reason or f"it was ended by {signal.Signals(-code).name}", line)
        else:
            self.fail(FailureKind.CRASH, f"it ended without returning, with exit code {code}", line)

    def _judge_trace(self) -> None:
        session = self.session
        ended_itself = session.ended in ("", "calls")
        if session.calls == 0:
            self.fail(FailureKind.NO_EVALUATION, "it returned without evaluating any configuration")
        elif session.illegal == session.calls:
            self.fail(FailureKind.ILLEGAL_ONLY, f"none of its {session.calls} requests was a valid configuration")
        elif ended_itself and session.spent_fraction < 0.5 and len(set(session.rows)) < 2:
            self.fail(
                FailureKind.NO_IMPROVEMENT, f"it evaluated one configuration, in {session.calls} requests, and ended"
            )
