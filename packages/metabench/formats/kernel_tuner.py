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

from ..errors import UserError
from ..files import read_bytes, write_json
from ..recording import CORRECT, Recording
from ..space import Space

FAILURES = {
    "InvalidConfig": "constraints",
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
    "TimeoutFailedConfig": "timeout",  # ours: Kernel Tuner has no word for these two
    "VerificationFailedConfig": "verification",
    "": "runtime",
}
_WORDS = {status: word for word, status in FAILURES.items() if word}
_COST_KEYS = ("compile_time", "verification_time", "framework_time", "strategy_time")  # benchmark_time repeats "times"
_RESERVED = {"times", "timestamp", "benchmark_time", *_COST_KEYS}
_NEVER_MEASURED = 1e20  # old Kernel Tuner versions wrote this for a failure


def read(
    path: Path | str, space: Space | None = None, objective: str | None = None, maximize: bool | None = None
) -> Recording:
    """Read a cache file.

    Args:
        space: the definition the recording belongs to; without it, the space of the recorded configurations.
        objective: a stored metric; by default what the file names, else "time".
        maximize: by default what the file says, else False for "time" and True for any other metric.

    Raises:
        UserError: names the file, the entry and what was expected.
    """
    path = Path(path)
    content = _parse(path)
    entries = content.get("cache")
    names = content.get("tune_params_keys")
    if not isinstance(entries, dict) or not isinstance(names, list) or not entries:
        raise UserError(
            f"{path} is no Kernel Tuner cache: it must have a list 'tune_params_keys' and a non-empty 'cache'"
        )
    objective = objective or content.get("objective") or "time"
    if maximize is None:
        maximize = bool(content.get("objective_higher_is_better", objective != "time"))
    rows = [_Entry(path, key, entry, names, objective) for key, entry in entries.items()]
    space = space or Space.from_configurations(names, [row.configuration for row in rows])
    return _assemble(path, content, space, rows, objective, maximize)


def _parse(path: Path) -> dict[str, Any]:
    """The file as JSON; a cache that was left open (a run still going, or killed) lacks its closing braces, and gets them."""
    text = read_bytes(path).decode("utf-8", errors="replace").rstrip()
    closed = text.rstrip(",").rstrip() + "}\n}" if text.endswith(",") else text
    try:
        content = json.loads(closed)
    except ValueError as error:
        raise UserError(f"{path} is truncated or no JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no Kernel Tuner cache: expected an object, found {type(content).__name__}")
    return content


class _Entry:
    """One configuration's entry, checked."""

    def __init__(self, path: Path, key: str, entry: Any, names: list[str], objective: str) -> None:
        self.where = f"{path}, entry {key!r}"
        if not isinstance(entry, Mapping):
            raise UserError(f"{self.where}: expected an object, found {type(entry).__name__}")
        if missing := [n for n in names if n not in entry]:
            raise UserError(f"{self.where}: parameters {', '.join(missing)} are missing")
        self.configuration = tuple(entry[n] for n in names)
        self.value, self.status = self._outcome(entry, objective)
        self.cost = self._cost(entry)
        self.metrics = {
            k: float(v)
            for k, v in entry.items()
            if k not in names and k not in _RESERVED and k != objective and isinstance(v, int | float)
        }
        self.detail = {
            k: entry[k] for k in (*_COST_KEYS, "benchmark_time", "times", "timestamp", "error") if k in entry
        }

    def _outcome(self, entry: Mapping[str, Any], objective: str) -> tuple[float, str]:
        word = entry.get("__error__") or entry.get("time")
        if isinstance(word, str):
            if word not in FAILURES:
                raise UserError(f"{self.where}: unknown failure {word!r}; known: {', '.join(filter(None, FAILURES))}")
            return np.nan, FAILURES[word]
        value = entry.get(objective)
        if isinstance(value, str) and value in FAILURES:
            return np.nan, FAILURES[value]
        if not isinstance(value, int | float):
            numbers = sorted(k for k, v in entry.items() if isinstance(v, int | float))
            raise UserError(f"{self.where}: no number under {objective!r}; it has numbers under: {', '.join(numbers)}")
        if np.isnan(value) or value == _NEVER_MEASURED:
            return np.nan, "runtime"
        return float(value), CORRECT

    def _cost(self, entry: Mapping[str, Any]) -> float:
        """Seconds: the single runs and all that surrounded them; a part that is missing, NaN or negative counts as nothing."""
        parts = [entry.get(k) for k in _COST_KEYS] + list(entry.get("times") or [])
        known = [p for p in parts if isinstance(p, int | float) and p >= 0]
        if not known:
            raise UserError(
                f"{self.where}: no cost; expected at least one of {', '.join((*_COST_KEYS, 'times'))} in milliseconds"
            )
        return sum(known) / 1e3


def _assemble(
    path: Path, content: Mapping[str, Any], space: Space, rows: list[_Entry], objective: str, maximize: bool
) -> Recording:
    n = len(space)
    values, costs, status = np.full(n, np.nan), np.full(n, np.nan), np.full(n, "", dtype="<U16")
    details: list[dict[str, Any]] = [{} for _ in range(n)]
    metrics = {name: np.full(n, np.nan) for row in rows for name in row.metrics}
    for entry in rows:
        row = space.find(entry.configuration)
        if row is None:
            raise UserError(f"{entry.where}: configuration {entry.configuration} is not in the space it is read for")
        values[row], costs[row], status[row], details[row] = entry.value, entry.cost, entry.status, entry.detail
        for name, value in entry.metrics.items():
            metrics[name][row] = value
    if (missing := status == "").any():
        first = space[int(np.flatnonzero(missing)[0])]
        raise UserError(
            f"{path} lacks {missing.sum()} of {n} configurations, the first {first}: a recording must be whole"
        )
    meta = {k: v for k, v in content.items() if k not in ("cache", "tune_params_keys", "tune_params")}
    meta["entries"] = details
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    folder = path.resolve().parent
    kernel = folder.parent.name if folder.name == "recordings" else folder.name
    unit = meta.get("objective_unit", "ms" if objective == "time" else objective)
    return Recording(kernel, stem, space, values, costs, status, objective, unit, maximize, metrics, meta)


def write(recording: Recording, path: Path | str) -> Path:
    """Write a recording as a closed cache file; names that end in .gz are compressed."""
    details = recording.meta.get("entries") or [{} for _ in range(len(recording.space))]
    cache = {}
    for row, configuration in enumerate(recording.space.configurations):
        entry: dict[str, Any] = recording.space.describe(row)
        correct = recording.status[row] == CORRECT
        entry[recording.objective] = float(recording.values[row]) if correct else _WORDS[str(recording.status[row])]
        entry |= {name: float(column[row]) for name, column in recording.metrics.items() if not np.isnan(column[row])}
        entry |= details[row] or {"framework_time": float(recording.costs[row]) * 1e3}
        cache[",".join(str(v) for v in configuration)] = entry
    head = {k: v for k, v in recording.meta.items() if k != "entries"}
    head.setdefault("device_name", recording.device)
    head.setdefault("kernel_name", recording.kernel)
    head |= {"objective": recording.objective, "objective_unit": recording.unit}
    head |= {"objective_higher_is_better": recording.maximize}
    params = {"tune_params_keys": list(recording.space.names), "tune_params": recording.space.tune_params}
    return write_json(path, {**head, **params, "cache": cache}, indent=None if str(path).endswith(".gz") else 0)
