"""What the operating system is asked to enforce on a candidate, and the clearing away of whatever it started. Linux;
less elsewhere.

The serving process becomes a subreaper: a descendant that outlives its parent becomes the server's child, wherever it
fled to with setsid, so that killing the server's children until there are none leaves nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import sys
import time
from pathlib import Path

from . import _seccomp

_PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 38, 36
_NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_NOBODY = 65_534
_MOST_PROCESSES = 32


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def become_subreaper() -> bool:
    """Adopt orphaned descendants; whether the system can."""
    libc = _libc()
    return libc is not None and libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def leave_network() -> bool:
    """Move this process into network and IPC namespaces of its own, where there is nothing; whether the system can.

    An ordinary user can only do so by way of a user namespace, in which the process may then do what follows below.
    """
    libc = _libc()
    if libc is None:
        return False
    return libc.unshare(_NEW_NET | _NEW_IPC) == 0 or libc.unshare(_NEW_NET | _NEW_IPC | _NEW_USER) == 0


def new_process_namespace() -> bool:
    """Let the next child be the first process of a namespace of its own, with which all others in it die; whether that works."""
    libc = _libc()
    return libc is not None and libc.unshare(_NEW_PID) == 0


def can_isolate(folder: str) -> bool:
    """Whether a child of this process can have process namespace and root folder of its own, tried in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if new_process_namespace() and _enter(folder) else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _enter(folder: str) -> bool:
    os.chroot(folder)
    os.chdir("/")
    return True


def confine(memory: int, cpu_seconds: int, root: str | None, filtered: bool) -> None:
    """Give up what a candidate does not need: files, privileges, and more than its share of memory, time and processes.

    Args:
        root: an empty folder that becomes the whole file system; None where that is not possible.
        memory: bytes of address space beyond what the process has now.
        cpu_seconds: after these, SIGXCPU; a second later, SIGKILL.
        filtered: whether only the system calls of `evotune._seccomp` remain.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    space = _address_space() + memory
    with contextlib.suppress(ValueError, OSError):  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    if root is not None:
        _enter(root)
        with contextlib.suppress(OSError):
            os.chmod("/", 0o555)  # noqa: PTH101
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # inside a user namespace there may be no such user
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_PROCESSES, _MOST_PROCESSES))
    libc = _libc()
    if libc is not None:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if filtered:
        _seccomp.install()


def _address_space() -> int:
    """Bytes of address space that this process has, 0 if the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def exit_code(pid: int, patience: float) -> int | None:
    """How a child ended: its exit code, negative for a signal; None if it did not end within `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code > 128 else code  # a keeper passes its child's signal on as 128 + signal
        if time.monotonic() >= end:
            return None
        time.sleep(0.001)


def clear(group: int, leader: int, patience: float = 5.0) -> int:
    """Kill a process group, its leader and every descendant of this process, and reap them all.

    Returns:
        How many were left after `patience` seconds; 0 when the system does as it says.
    """
    end = time.monotonic() + patience
    for attempt in itertools.count():
        # Looking through /proc takes milliseconds, and nearly always there is nothing to find.
        for pid in (-group, leader, *(_descendants() if attempt > 2 else [])):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if _reap() == 0:
            return 0
        if time.monotonic() > end:
            break
        time.sleep(0.001)
    return max(1, len(_descendants()))


def _reap() -> int:
    """Collect dead children; 0 if there are no children left at all."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            return 1


def _descendants() -> list[int]:
    """Processes below this one, by /proc; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    stat = Path(entry.path, "stat").read_text()
                    children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    front = [os.getpid()]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        found += front
    return found
