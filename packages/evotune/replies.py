"""Reading a language model's reply: its program and its description, whatever it put around them. Nothing of it is executed."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from .syntax import parse

_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_DESCRIPTION = re.compile(r"#\s*Description\s*:\s*(.+)", re.IGNORECASE)
_MAIN_GUARD = re.compile(r"^if\s+__name__\s*==\s*['\"]__main__['\"]\s*:.*", re.MULTILINE | re.DOTALL)
_LANGUAGES = ("", "python", "py", "python3")


@dataclass(frozen=True)
class Program:
    """What a reply holds: source and the one line that says its idea."""

    source: str
    description: str


def read(reply: str | None) -> Program | None:
    """The program in a reply, None if there is none.

    Of several code blocks the one that defines a callable class is taken, the last of those that parse before the
    last that do not; a block that was cut off before its closing fence counts.
    """
    text = reply or ""
    blocks = [body for language, body in _FENCED.findall(text) if language.lower() in _LANGUAGES]
    if not blocks and "class " in text and "def __call__" in text:
        blocks = [text]  # code without a fence
    programs = [block for block in blocks if re.search(r"^\s*class\s+\w+", block, re.MULTILINE)]
    if not programs:
        return None
    source = max(enumerate(programs), key=lambda item: (_worth(item[1]), item[0]))[1]
    return Program(_MAIN_GUARD.sub("", source).rstrip() + "\n", description(text, source))


def _worth(source: str) -> tuple[bool, bool]:
    try:
        parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False, "def __call__" in source
    return True, "def __call__" in source


def description(text: str, source: str = "") -> str:
    """The line that says the idea: as it was asked for, or else the first of the program's docstring; "" if there is none."""
    if match := _DESCRIPTION.search(text):
        return match.group(1).strip()[:500]
    try:
        first = (ast.get_docstring(parse(source)) or "").strip().splitlines()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        first = []
    return first[0][:500] if first else ""
