"""T4 results files, in and out: the auto-tuning community's common format (schema 1.0.0).

A result states its configuration, what it took (in the file's time unit), how it ended in one word, and what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..files import read_json, write_json
from ..recording import CORRECT, Recording
from ..space import Space
from . import entries
from .entries import Entry
from .kernel_tuner import FAILURES, WORDS

INVALIDITY = {
    "correct": CORRECT, "compile": "compile", "runtime": "runtime", "timeout": "timeout",
    "correctness": "verification", "constraints": "constraints",
}  # fmt: skip
"""T4's words for how an evaluation ended, and ours."""
_INVALIDITY_OF = {status: word for word, status in INVALIDITY.items()}
_PARTS = {
    "compilation": "compile", "validation": "verification", "benchmark": "benchmark", "framework": "framework",
    "search_algorithm": "strategy",
}  # fmt: skip
_MILLISECONDS = {
    "seconds": 1e3, "s": 1e3, "milliseconds": 1.0, "miliseconds": 1.0, "ms": 1.0, "microseconds": 1e-3,
    "nanoseconds": 1e-6, "ns": 1e-6,
}  # fmt: skip
_VERSION = "1.0.0"


def read(
    path: Path | str, space: Space | None = None, objective: str | None = None, maximize: bool | None = None
) -> Recording:
    """Read a T4 results file; arguments as `metabench.formats.kernel_tuner.read`.

    Raises:
        UserError: names the file, the result and what was expected.
    """
    return from_content(Path(path), read_json(path), space, objective, maximize)


def from_content(
    path: Path, content: Any, space: Space | None, objective: str | None, maximize: bool | None
) -> Recording:
    """As `read`, from the parsed file."""
    results = content.get("results") if isinstance(content, Mapping) else None
    if not isinstance(results, list) or not results:
        raise UserError(f"{path} is no T4 results file: it must have a non-empty list 'results'")
    meta = dict(content.get("metadata") or {})
    unit = str(meta.pop("timeunit", "seconds")).lower()
    if unit not in _MILLISECONDS:
        raise UserError(f"{path}: unknown timeunit {unit!r} in 'metadata'; allowed: {', '.join(_MILLISECONDS)}")
    rows = [_entry(f"{path}, result {i}", result, _MILLISECONDS[unit]) for i, result in enumerate(results)]
    first = results[0]
    names = list(first["configuration"])
    own = (first.get("objectives") or ["time"])[0]
    objective = objective or own
    stated = meta.pop("objective_higher_is_better", None) if objective == own else None
    maximize = entries.direction(objective, maximize, stated, path)
    units = {m["name"]: m.get("unit") for m in first.get("measurements", [])}
    for entry in rows:
        if list(entry.extra["names"]) != names:
            raise UserError(f"{entry.where}: its parameters are {entry.extra['names']}, those of result 0 {names}")
        del entry.extra["names"]
        if entry.status == CORRECT and "time" not in entry.numbers and objective not in entry.numbers and entry.runs:
            entry.numbers["time"] = float(np.mean(entry.runs))  # a file may leave it to its reader
    return entries.assemble(path, names, rows, space, objective, maximize, meta, units.get(objective))


def _entry(where: str, result: Any, factor: float) -> Entry:
    for key, kind in (("configuration", Mapping), ("times", Mapping), ("invalidity", str)):
        if not isinstance(result, Mapping) or not isinstance(result.get(key), kind):
            raise UserError(f"{where}: expected {key!r} to be {'text' if kind is str else 'an object'}")
    word = result["invalidity"]
    if word not in INVALIDITY:
        raise UserError(f"{where}: unknown invalidity {word!r}; allowed: {', '.join(INVALIDITY)}")
    names = list(result["configuration"])
    entry = Entry(where, tuple(result["configuration"].values()), {}, INVALIDITY[word], extra={"names": names})
    for key, value in result["times"].items():
        if key == "runtimes" and isinstance(value, list):
            entry.runs = [v * factor if entries.is_number(v) else np.nan for v in value]
        elif key in _PARTS and entries.is_number(value):
            entry.parts[_PARTS[key]] = value * factor
    entry.timestamp = result.get("timestamp")
    for measurement in result.get("measurements", []):
        _measured(entry, measurement)
    entry.extra |= result.get("extra", {})
    return entry


def _measured(entry: Entry, measurement: Any) -> None:
    if not isinstance(measurement, Mapping) or "name" not in measurement:
        raise UserError(f"{entry.where}: a measurement must be an object with 'name' and 'value', not {measurement!r}")
    name: str = measurement["name"]
    value: Any = measurement.get("value")
    if entries.is_number(value):
        entry.numbers[name] = value
    elif isinstance(value, str) and value in FAILURES:
        if entry.status == CORRECT:
            entry.status = FAILURES[value]
    else:
        entry.extra[name] = value


def write(recording: Recording, path: Path | str) -> Path:
    """Write a recording as T4 results, times in milliseconds; names that end in .gz are compressed."""
    head = {k: v for k, v in recording.meta.items() if k != "entries"}
    head |= {"timeunit": "milliseconds", "objective_higher_is_better": recording.maximize}
    head |= {"device_name": recording.meta.get("device_name", recording.device)}
    results = [_result(recording, row) for row in range(len(recording.space))]
    return write_json(path, {"metadata": head, "results": results, "schema_version": _VERSION}, indent=None)


def _result(recording: Recording, row: int) -> dict[str, Any]:
    status, details = str(recording.status[row]), recording.details
    correct = status == CORRECT
    value: Any = float(recording.values[row]) if correct else WORDS[status]
    measured = [{"name": recording.objective, "value": value, "unit": recording.unit if correct else ""}]
    measured += [
        {"name": name, "value": float(column[row]), "unit": ""}
        for name, column in recording.metrics.items()
        if not np.isnan(column[row])
    ]
    result: dict[str, Any] = {}
    if details is None:
        times: dict[str, Any] = {"framework": float(recording.costs[row]) * 1e3, "runtimes": []}
    else:
        columns = {word: details.parts[name] for word, name in _PARTS.items()}
        times = {word: float(column[row]) for word, column in columns.items() if not np.isnan(column[row])}
        if (runs := details.runs_of(row)) is not None:
            times["runtimes"] = runs
        if stamp := str(details.timestamps[row]):
            result["timestamp"] = stamp
        extra = details.extra.get(row, {})
        measured += [{"name": k, "value": v, "unit": ""} for k, v in extra.items() if isinstance(v, str | list)]
        # The schema's measurements are numbers, texts and lists; anything else stands beside them.
        if beside := {k: v for k, v in extra.items() if not isinstance(v, str | list)}:
            result["extra"] = beside
    result |= {"configuration": recording.space.describe(row), "times": times, "invalidity": _INVALIDITY_OF[status]}
    return result | {"correctness": int(correct), "measurements": measured, "objectives": [recording.objective]}
