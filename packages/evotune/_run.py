"""The parent's side of one run of a candidate: it answers, watches the clock, keeps what is printed, and decides what happened.

Everything that comes from the candidate is taken for what it may be: forged, cut off, without end. Its pipes are never waited on.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import signal
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from metabench.replay import Stop
from metabench.space import Space

from . import _wire
from .contract import Failure, FailureKind, line_of

if TYPE_CHECKING:
    from .jail import JailLimits

_TICK = 0.1  # seconds between looks at the clock while a candidate is silent
_REFUSALS = 100  # how often a candidate may ask after the end before it counts as not returning
_HANG = re.compile(rf'File "{_wire.SOURCE_NAME}", line (\d+)')
_EXIT_SIGNALS = {signal.SIGXCPU: FailureKind.TIMEOUT, signal.SIGKILL: FailureKind.MEMORY}


class Answers(Protocol):
    """What answers a candidate within its budget, with the attributes of `metabench.replay.Session`: one, or live measuring."""

    @property
    def space(self) -> Space: ...
    @property
    def calls(self) -> int: ...
    @property
    def illegal(self) -> int: ...
    @property
    def rows(self) -> Collection[int]: ...
    @property
    def ended(self) -> str: ...
    @property
    def spent_fraction(self) -> float: ...
    def ask(self, configuration: Sequence[Any]) -> float: ...


class Run:
    """One run, from the parent's side.

    Args:
        limits: what the candidate may use.
        session: answers it, within its budget.
        source: the program, to quote its lines.
    """

    def __init__(self, limits: JailLimits, session: Answers, source: str) -> None:
        self.limits, self.session, self.source = limits, session, source
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
        space, asked = self.session.space, time.monotonic()
        known = 0 <= row < len(space)
        verdict, cost = _wire.GO, math.inf
        try:
            cost = self.session.ask(space.configurations[row] if known else ())
        except Stop:
            verdict = _wire.END
            self._refusals += 1
        self._deadline += time.monotonic() - asked  # measuring an answer takes minutes, which are not the candidate's
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
