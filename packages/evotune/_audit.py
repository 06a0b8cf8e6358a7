"""What Python itself refuses to a candidate: an audit hook, which cannot be taken off again.

It makes every attempt at files, processes, sockets and raw memory a failure with a name and a line, on every system. It does not
hold against native code; what the operating system enforces (`evotune._sandbox`) does.
"""

from __future__ import annotations

import sys
from typing import Any

from .contract import FORBIDDEN_IMPORTS

_EVENTS = (
    "open", "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "tempfile.", "glob.", "pty.", "sqlite3.", "mmap.", "fcntl.",
    "resource.", "syslog.", "urllib.", "http.", "ftplib.", "smtplib.", "pathlib.", "marshal.", "pickle.", "gc.", "webbrowser.",
    "sys.settrace", "sys.setprofile", "cpython.", "builtins.input", "_thread.start", "_posixsubprocess.", "code.__new__",
)  # fmt: skip


class Forbidden(PermissionError):
    """A candidate tried what it may not."""


def arm() -> None:
    """From now on, refuse."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(_EVENTS):
        raise Forbidden(f"{event} is not allowed")
    if event == "import" and str(arguments[0]).split(".")[0] in FORBIDDEN_IMPORTS:
        raise Forbidden(f"importing {arguments[0]} is not allowed")
