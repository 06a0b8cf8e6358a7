"""Tuned entries: which configuration of a kernel is the fastest on a device, kept as a list of objects in DEVICE.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metabench.errors import UserError
from metabench.files import read_json, write_json

KEYS = ("kernel", "device", "backend", "shape_class", "dtype")
"""What an entry holds for: all of them must match."""


def read(path: Path | str) -> list[dict[str, Any]]:
    """Entries of a file; `UserError` names it if it is none."""
    entries = read_json(path)
    if not isinstance(entries, list) or not all(isinstance(e, Mapping) and e.keys() >= {*KEYS} for e in entries):
        raise UserError(f"{path} is no list of tuned entries; each must have {', '.join(KEYS)} and a configuration")
    return entries


def keep(entry: Mapping[str, Any], path: Path | str) -> Path:
    """Put an entry into a file, in place of one that holds for the same; other entries stay."""
    path = Path(path)
    others = [e for e in read(path) if any(e[k] != entry[k] for k in KEYS)] if path.exists() else []
    return write_json(path, [*others, dict(entry)])
