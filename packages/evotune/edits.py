"""Replies that are edits of a parent, in SEARCH/REPLACE blocks: applied exactly, or not at all."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^<{5,9} SEARCH[ \t]*\n(.*?)^={5,9}[ \t]*\n(.*?)^>{5,9} REPLACE[ \t]*$", re.DOTALL | re.MULTILINE)


class EditFailed(ValueError):
    """The edits of a reply do not fit its parent; the message says which and why."""


def apply(base: str, reply: str) -> str:
    """The parent's source with the edits of a reply.

    Every SEARCH must occur exactly once, up to blanks at the ends of lines.

    Raises:
        EditFailed: no block, a text that is missing or not unique, or nothing changed.
    """
    blocks = _BLOCK.findall(reply)
    if not blocks:
        raise EditFailed("the reply holds no SEARCH/REPLACE block")
    source = _stripped(base)
    for number, (search, replacement) in enumerate(blocks, start=1):
        wanted = _stripped(search)
        count = source.count(wanted) if wanted.strip() else 0
        if count != 1:
            first = wanted.strip().splitlines()[0][:80] if wanted.strip() else "(nothing)"
            raise EditFailed(f"edit {number} searches for a text that occurs {count} times: {first}")
        source = source.replace(wanted, _stripped(replacement))
    if source == _stripped(base):
        raise EditFailed("the edits change nothing")
    return source


def _stripped(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
