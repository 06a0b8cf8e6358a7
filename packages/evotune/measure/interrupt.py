"""Ctrl-C and SIGTERM as one exception, raised in the main thread, so that what was measured can be saved before the end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupted(BaseException):
    """The user or the system wants this process to end. Not an Exception: no optimizer's `except Exception` may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block, SIGTERM and ctrl-C raise `Interrupted`; in the main thread only, handlers are not allowed elsewhere."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
