"""The process that candidates run in. Started by `evotune.jail` as `python -m evotune._candidate`, never by hand.

A server, warm with NumPy and the search spaces, forks one process for every run. It never runs a candidate's code
itself, so one run learns nothing from another. The recorded answers are not here: a candidate's `func` asks the
parent for one at a time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from metabench.replay import Func, Stop
from metabench.searchspace import Searchspace
from metabench.space import Space

from . import _audit, _sandbox, _seccomp, _wire
from .contract import ALLOWED_IMPORTS, FailureKind

_WARM = (
    *sorted(ALLOWED_IMPORTS - {"scipy"}), "numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random",
)  # fmt: skip
"""Loaded before the first fork: a candidate has no files to load anything from."""


_KINDS = (
    # Raised by the audit hook, and for what the filter of system calls or the unprivileged user may not.
    (PermissionError, FailureKind.FORBIDDEN),
    (MemoryError, FailureKind.MEMORY),
    (ImportError, FailureKind.IMPORT),
    (SyntaxError, FailureKind.SYNTAX),
)


class _Asking:
    """Asks the parent, whose session answers by the rules of `metabench.replay`."""

    def __init__(self, space: Space, asking: int, answers: int) -> None:
        self._space, self._asking, self._answers = space, asking, answers
        self._spent = 0.0

    def ask(self, configuration: Sequence[Any]) -> float:
        """The cost of a configuration."""
        row = self._space.find(configuration)
        os.write(self._asking, _wire.ASK.pack(_wire.ILLEGAL if row is None else row))
        answer = os.read(self._answers, _wire.ANSWER.size)
        if len(answer) < _wire.ANSWER.size:
            raise Stop("the parent is gone")
        cost, self._spent, verdict = _wire.ANSWER.unpack(answer)
        if verdict == _wire.END:
            raise Stop("the budget is spent")
        return cost

    def spent(self) -> float:
        """How much of the budget is spent, as the last answer told."""
        return self._spent


class OptAlg:
    """Stand-in for Kernel Tuner's class of that name, whose import takes seconds."""

    def __init__(self) -> None:
        self.costfunc_kwargs = {"scaling": False, "snap": False}


class StopCriterionReached(Exception):
    """Stand-in for Kernel Tuner's; never raised here, so that catching it does no harm."""


def main() -> None:
    """Serve the parent until its end of the channel closes."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        _install_stand_ins()
        for module in _WARM:
            importlib.import_module(module)
        folder = os.getcwd()  # noqa: PTH109 - a string is wanted
        protection = {
            "subreaper": _sandbox.become_subreaper(),
            "network": _sandbox.leave_network(),
            "isolation": _sandbox.can_isolate(folder),
            "unprivileged": os.geteuid() == 0,
            "system calls": _seccomp.works(),
        }
        server = _Server(channel, folder if protection["isolation"] else None)
        with contextlib.suppress(OSError, EOFError):  # the parent is gone, in the middle of something
            _wire.send(channel, protection)
            server.serve()
        server.end(exited=False)
    shutil.rmtree(folder, ignore_errors=True)  # the parent does so too, if it lives to


class _Server:
    """Holds the spaces, forks the runs, clears away what they leave."""

    def __init__(self, channel: socket.socket, folder: str | None) -> None:
        self.channel, self.folder = channel, folder
        self.root: str | None = None  # the run's own, empty, gone with it: no run finds what another left
        self.spaces: dict[int, Space] = {}
        self.group = self.inner = 0  # the run that is under way: its process group and the process of the candidate

    def serve(self) -> None:
        """Answer frames until there are no more."""
        while (frame := _wire.receive(self.channel)) is not None:
            message, payload, descriptors = frame
            if message["op"] == "space":
                self.spaces[message["id"]] = _space(message, payload)
            elif message["op"] == "run":
                self.start(message, descriptors)
                _wire.send(self.channel, {"pid": self.inner})
            elif message["op"] == "end":
                _wire.send(self.channel, self.end(message["exited"]))

    def start(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Fork a keeper, which leads a session of its own and, where that works, forks the candidate into isolation."""
        reading, writing = os.pipe()
        self.root = tempfile.mkdtemp(dir=self.folder) if self.folder is not None else None
        self.group = os.fork()
        if self.group == 0:
            try:
                os.setsid()
                os.close(reading)
                self.channel.close()
                _keep(message, self.spaces[message["space"]], descriptors, writing, self.root)
            finally:
                os._exit(0)
        for descriptor in (writing, *descriptors):
            os.close(descriptor)
        told = os.read(reading, 32)
        os.close(reading)
        self.inner = int(told or self.group)

    def end(self, exited: bool) -> dict[str, Any]:
        """Kill what is left of the run; how it had ended (a negative number is a signal), and the CPU seconds it used."""
        if not self.group:
            return {}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = _sandbox.exit_code(self.group, patience=0.5 if exited else 0.0)
        left = _sandbox.clear(self.group, self.inner)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)
        self.group = self.inner = 0
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"code": code, "left": left, "cpu": used}


def _space(message: dict[str, Any], payload: bytes) -> Space:
    table = np.frombuffer(payload, dtype=message["dtype"]).reshape(message["shape"])
    space = Space(message["names"], message["values"], (), table)
    space.find(space[0])  # builds the look-up once, for all runs
    return space


def _keep(message: dict[str, Any], space: Space, descriptors: list[int], writing: int, root: str | None) -> None:
    """Run the candidate, in a child with a process namespace of its own if that works, and exit as it exits."""
    inner = os.fork() if root is not None and _sandbox.new_process_namespace() else 0
    if inner == 0:
        os.close(writing)
        _run(message, space, descriptors, root)
    os.write(writing, str(inner).encode())
    for descriptor in (writing, *descriptors):
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def _run(message: dict[str, Any], space: Space, descriptors: list[int], root: str | None) -> None:
    """Be the candidate, report, exit."""
    asking, answers, output = descriptors
    report: dict[str, Any] = {"kind": FailureKind.CRASH, "message": "the process could not be set up"}
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.enable(2, all_threads=False)
        faulthandler.register(signal.SIGUSR1, 2, all_threads=False)  # the parent asks so where a candidate hangs
        signal.signal(
            signal.SIGXCPU, lambda *_: os._exit(128 + signal.SIGXCPU)
        )  # the first of a namespace ignores the default
        faulthandler.register(signal.SIGXCPU, 2, all_threads=False, chain=True)
        for module in message["imports"]:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        _sandbox.confine(message["memory"], message["cpu"], root, "seccomp" in message["layers"])
        random.seed(message["seed"])
        np.random.seed(message["seed"] % 2**32)  # noqa: NPY002
        parent, searchspace = _Asking(space, asking, answers), Searchspace(space, message["seed"])
        if "audit" in message["layers"]:
            _audit.arm()
        report = _call(message["source"], message["class"], Func(parent.ask, parent.spent), searchspace)
        sys.stdout.flush()
    finally:
        body = json.dumps(report).encode()[: _wire.LONGEST_REPORT]
        os.write(asking, _wire.ASK.pack(_wire.REPORT) + _wire.LENGTH.pack(len(body)) + body)
        os._exit(0)


def _call(source: str, name: str, func: Func, searchspace: Searchspace) -> dict[str, Any]:
    """Run the program; its failure, or {} if it returned or was stopped at the end of its budget."""
    try:
        namespace: dict[str, Any] = {"__name__": "candidate"}
        exec(compile(source, _wire.SOURCE_NAME, "exec"), namespace)
        namespace[name]()(func, searchspace)
    except Stop:
        return {}
    except BaseException as error:
        return _failure(error)
    return {}


def _failure(error: BaseException) -> dict[str, Any]:
    """What a candidate raised, as a report; read frame by frame, for there are no files to read source lines from."""
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _wire.SOURCE_NAME
    ]
    default = FailureKind.CRASH if lines else FailureKind.INTERFACE
    kind = next((kind for exception, kind in _KINDS if isinstance(error, exception)), default)
    if str(error) == "can't start new thread":  # how Python words what the filter of system calls refuses
        kind = FailureKind.FORBIDDEN
    message = f"{type(error).__name__}: {error}"[:1000]
    return {"kind": kind, "message": message, "line": lines[-1] if lines else getattr(error, "lineno", None)}


def _install_stand_ins() -> None:
    """Light modules in place of Kernel Tuner's."""
    contents: dict[str, dict[str, Any]] = {
        "kernel_tuner": {},
        "kernel_tuner.strategies": {},
        "kernel_tuner.strategies.wrapper": {"OptAlg": OptAlg},
        "kernel_tuner.strategies.common": {"CostFunc": Func},
        "kernel_tuner.searchspace": {"Searchspace": Searchspace},
        "kernel_tuner.util": {"StopCriterionReached": StopCriterionReached},
    }
    for name, members in contents.items():
        module = types.ModuleType(name, "A stand-in.")
        vars(module).update(members)
        module.__path__ = []
        sys.modules[name] = module


if __name__ == "__main__":
    main()
