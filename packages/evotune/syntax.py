"""Parsing Python, one thread at a time.

CPython 3.11 keeps the depth of a parse where all threads share it: two at once, and one of them fails with "SystemError: AST
constructor recursion depth mismatch". Candidates are checked in threads, so every parse here goes through one lock.
"""

from __future__ import annotations

import ast
import threading

_one_at_a_time = threading.Lock()


def parse(source: str) -> ast.Module:
    """`ast.parse`, with its errors."""
    with _one_at_a_time:
        return ast.parse(source)
