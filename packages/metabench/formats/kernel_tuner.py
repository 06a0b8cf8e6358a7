"""Kernel Tuner cache files, in and out: what `tune_kernel(cache=...)` writes, and what the public benchmark hub holds.

An entry states its parameters by name, the objective ("time", or the name of a failure in its place), the single runs ("times")
and what each part of the evaluation took, in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..details import PARTS
from ..errors import UserError
from ..files import read_bytes, write_json
from ..recording import CORRECT, Recording
from ..space import Space
from . import entries
from .entries import Entry

FAILURES = {
    "InvalidConfig": "constraints",
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
    "TimeoutFailedConfig": "timeout",  # ours: Kernel Tuner has no word for these two
    "VerificationFailedConfig": "verification",
    "": "runtime",
}
WORDS = {status: word for word, status in FAILURES.items() if word}
_NOT_META = ("cache", "tune_params_keys", "tune_params", "objective", "objective_unit", "objective_higher_is_better")


def read(
    path: Path | str, space: Space | None = None, objective: str | None = None, maximize: bool | None = None
) -> Recording:
    """Read a cache file.

    Args:
        space: the definition the recording belongs to; without it, the space of the recorded configurations.
        objective: a stored metric, or an expression over stored metrics, parameters and numbers of the file's head
            ("1e-9 * flops / time"); by default what the file names, else "time".
        maximize: by default what the file says of its objective, else what is usual for it.

    Raises:
        UserError: names the file, the entry and what was expected.
    """
    return from_content(Path(path), parse(Path(path)), space, objective, maximize)


def from_content(
    path: Path, content: Mapping[str, Any], space: Space | None, objective: str | None, maximize: bool | None
) -> Recording:
    """As `read`, from the parsed file."""
    cache, names = content.get("cache"), content.get("tune_params_keys")
    if not isinstance(cache, dict) or not isinstance(names, list) or not cache:
        raise UserError(
            f"{path} is no Kernel Tuner cache: it must have a list 'tune_params_keys' and a non-empty 'cache'"
        )
    own = content.get("objective") or "time"
    objective = objective or own
    stated = content.get("objective_higher_is_better") if objective == own else None
    maximize = entries.direction(objective, maximize, stated, path)
    meta = {k: v for k, v in content.items() if k not in _NOT_META}
    unit = content.get("objective_unit") if objective == own else None
    rows = [_entry(f"{path}, entry {key!r}", entry, names, objective) for key, entry in cache.items()]
    return entries.assemble(path, names, rows, space, objective, maximize, meta, unit)


def parse(path: Path) -> dict[str, Any]:
    """The file as JSON; a cache that was left open (a run still going, or killed) lacks its closing braces, and gets them."""
    text = read_bytes(path).decode("utf-8", errors="replace").rstrip()
    try:
        content = json.loads(text)
    except ValueError as error:
        content = _closed(text)
        if content is None:
            raise UserError(f"{path} is truncated or no JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no Kernel Tuner cache: expected an object, found {type(content).__name__}")
    return content


def _closed(text: str) -> Any:
    """A cache whose last entry is whole, with the braces that are missing after it; None if it is something else."""
    body = text.removesuffix(",").rstrip()
    for braces in ("}", "}}") if body.endswith("}") else ():
        try:
            return json.loads(body + braces)
        except ValueError:
            continue
    return None


def _entry(where: str, entry: Any, names: list[str], objective: str) -> Entry:
    if not isinstance(entry, Mapping):
        raise UserError(f"{where}: expected an object, found {type(entry).__name__}")
    if missing := [n for n in names if n not in entry]:
        raise UserError(f"{where}: parameters {', '.join(missing)} are missing")
    result = Entry(where, tuple(entry[n] for n in names), {})
    for key, value in entry.items():
        if key in names:
            continue
        if key.removesuffix("_time") in PARTS and key.endswith("_time") and entries.is_number(value):
            result.parts[key.removesuffix("_time")] = value
        elif key == "times" and isinstance(value, list) and entries.are_numbers(value):
            result.runs = value
        elif key == "timestamp" and isinstance(value, str):
            result.timestamp = value
        elif entries.is_number(value):
            result.numbers[key] = value
        elif key in ("__error__", "time", objective) and isinstance(value, str):
            result.status = _status(value, where)
        else:
            result.extra[key] = value
    return result


def _status(word: str, where: str) -> str:
    if word not in FAILURES:
        raise UserError(f"{where}: unknown failure {word!r}; known: {', '.join(filter(None, FAILURES))}")
    return FAILURES[word]


def write(recording: Recording, path: Path | str) -> Path:
    """Write a recording as a closed cache file; names that end in .gz are compressed."""
    cache = {
        ",".join(str(v) for v in c): _written(recording, row) for row, c in enumerate(recording.space.configurations)
    }
    head = {"device_name": recording.device, "kernel_name": recording.kernel, **recording.meta}
    head.pop("entries", None)
    head |= {"objective": recording.objective, "objective_unit": recording.unit}
    head |= {"objective_higher_is_better": recording.maximize}
    params = {"tune_params_keys": list(recording.space.names), "tune_params": recording.space.tune_params}
    return write_json(path, {**head, **params, "cache": cache}, indent=None if str(path).endswith(".gz") else 0)


def _written(recording: Recording, row: int) -> dict[str, Any]:
    entry: dict[str, Any] = recording.space.describe(row)
    correct = recording.status[row] == CORRECT
    entry[recording.objective] = float(recording.values[row]) if correct else WORDS[str(recording.status[row])]
    entry |= {name: float(column[row]) for name, column in recording.metrics.items() if not np.isnan(column[row])}
    details = recording.details
    if details is None:
        own = (recording.meta.get("entries") or {row: None})[row]
        return entry | (own or {"framework_time": float(recording.costs[row]) * 1e3})
    entry |= {f"{name}_time": float(c[row]) for name, c in details.parts.items() if not np.isnan(c[row])}
    if (runs := details.runs_of(row)) is not None:
        entry["times"] = runs
    if stamp := str(details.timestamps[row]):
        entry["timestamp"] = stamp
    return entry | details.extra.get(row, {})
