"""The system calls that a candidate is left with: those of a process that computes, and asks through two pipes.

A filter of the Linux kernel (seccomp, mode 2), written by hand as a classic BPF program, for that takes no library. It is a list
of what is allowed; everything else fails with EPERM, which Python raises as PermissionError. It holds against native code too,
needs no privilege, and cannot be taken off. Calls are listed for the two processors whose numbers were checked against the
kernel's headers; elsewhere there is no filter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL, _ALLOW, _REFUSE = 0x80000000, 0x7FFF0000, 0x00050001  # the last: fail with EPERM (1)
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data

_CALLS = {
    "read": (0, 63), "write": (1, 64), "writev": (20, 66), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "ppoll": (271, 73), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216),
    "madvise": (28, 233), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "getcpu": (309, 168), "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "gettimeofday": (96, 169), "times": (100, 153), "getrusage": (98, 165), "sysinfo": (99, 179),
    "uname": (63, 160), "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "futex": (202, 98), "membarrier": (324, 283),
    "rseq": (334, 293), "getrandom": (318, 278), "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
"""What is allowed, with its numbers on x86-64 and on AArch64."""
_POLL = 7  # x86-64 alone has it
_MACHINES = {
    "x86_64": (0xC000003E, [*(x86 for x86, _ in _CALLS.values()), _POLL], 234),
    "aarch64": (0xC00000B7, [arm for _, arm in _CALLS.values()], 131),
}
"""By machine: its number in the audit system, the allowed calls, and tgkill, which is allowed towards the process itself."""


def install() -> bool:
    """From now on, refuse this process all other calls, and what it may fork; whether the system can."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES or sys.maxsize < 2**32:
        return False
    code = ctypes.create_string_buffer(b"".join(_program(*_MACHINES[platform.machine()], os.getpid())))
    length = (len(code) - 1) // 8
    head = ctypes.create_string_buffer(struct.pack("@HP", length, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_void_p(ctypes.addressof(head)), 0, 0) == 0


def works() -> bool:
    """Whether `install` does what it says here, tried in a process of its own."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            if install():
                try:
                    os.open("/", os.O_RDONLY)
                except PermissionError:
                    os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _program(architecture: int, allowed: Sequence[int], tgkill: int, pid: int) -> list[bytes]:
    """The filter's instructions: code, jump if true, jump if false, operand."""
    calls = len(allowed)
    # After the calls: the test for tgkill (3 instructions), refuse, allow.
    return [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        *(_instruction(_JUMP_IF_EQUAL, call, calls - i + 3, 0) for i, call in enumerate(allowed)),
        _instruction(_JUMP_IF_EQUAL, tgkill, 0, 2),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_JUMP_IF_EQUAL, pid, 1, 0),
        _instruction(_RETURN, _REFUSE),
        _instruction(_RETURN, _ALLOW),
    ]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
