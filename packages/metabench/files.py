"""Reading and writing files so that nothing is lost: a file is either the old one or the new one, never half of one."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .errors import UserError


def write_atomic(path: Path | str, data: str | bytes) -> Path:
    """Write `data` to a temporary file beside `path` and move it there; missing folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write_json(path: Path | str, value: Any, indent: int | None = 1) -> Path:
    """Write `value` as JSON; a name that ends in .gz is compressed, with no time stamp so that equal data are equal files."""
    text = json.dumps(value, indent=indent, allow_nan=False) + "\n"
    if str(path).endswith(".gz"):
        return write_atomic(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))
    return write_atomic(path, text)


def read_bytes(path: Path | str) -> bytes:
    """The bytes of `path`, decompressed if it is a gzip file (told by its content, not by its name).

    Raises:
        UserError: the file is missing, unreadable, or a truncated gzip file; the message names it.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, ValueError) as error:
        reason = "is truncated" if isinstance(error, EOFError) else f"cannot be read ({error})"
        raise UserError(f"{path} {reason}") from error


def read_json(path: Path | str) -> Any:
    """The JSON value in `path` (.json or .json.gz).

    Raises:
        UserError: the file is missing, truncated or no JSON; the message names it and the place.
    """
    raw = read_bytes(path)
    try:
        return json.loads(raw)
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error
