"""The one kind of error that is the reader's to mend: the command prints its sentence and no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something that was asked for cannot be had; the message says what was wrong and what is allowed."""


def choose(name: str, allowed: Iterable[str], what: str) -> str:
    """Return `name` if it is one of `allowed`, else raise a `UserError` that lists them.

    Args:
        what: the kind of thing, in the singular: "kernel", "optimizer".
    """
    options = sorted(allowed)
    if name in options:
        return name
    close = difflib.get_close_matches(str(name), options, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(options) if options else "none"
    raise UserError(f"unknown {what} {name!r}; allowed: {listed}.{hint}")
