"""Tidy tables and what they carry: CSV always, parquet where pyarrow is installed, provenance beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import provenance
from .files import write_atomic, write_json
from .score import ESTIMATORS, Scores

Row = dict[str, Any]


def score_rows(scores: Scores) -> list[Row]:
    """One row per optimizer and recording: P with its interval, own time per evaluation, how often the optimum was found, and
    the failure for which there is no score.

    The columns are always the same; an estimator that was not asked for, or has no score there, is None.
    """
    rows = []
    for i, optimizer in enumerate(scores.optimizers):
        for j, recording in enumerate(scores.recordings):
            result = scores.results[optimizer, recording]
            traces = result.traces or result.atm_traces
            row: Row = {"optimizer": optimizer, "space": recording, "repeats": scores.repeats, "seed": scores.seed}
            for estimator in ESTIMATORS:
                row |= _columns(scores, optimizer, recording, estimator)
            row["overhead_ms"] = 1e3 * sum(t.overhead for t in traces) / max(sum(len(t.rows) for t in traces), 1)
            row["found_optimum"] = float(np.isclose(scores.curves[i, j, :, -1], 1.0).mean()) if result.traces else None
            row["seen"] = (optimizer, recording) in scores.seen
            row["failure"] = result.failure
            rows.append(row)
    return rows


def _columns(scores: Scores, optimizer: str, recording: str, estimator: str) -> Row:
    values: list[float | None] = [None, None, None]
    if estimator in scores.estimators:
        estimate = scores.on(optimizer, recording, estimator)
        values = [None if np.isnan(v) else v for v in (estimate.mean, estimate.low, estimate.high)]
    return dict(zip((f"P_{estimator}{end}" for end in ("", "_low", "_high")), values, strict=True))


def write_traces(scores: Scores, path: Path) -> Path:
    """All runs as one .npz of columns, one row per evaluation: optimizer, recording, run, row, seconds.

    Under `direct` an evaluation is a new configuration, with the time at which it ended; under `atm` it is a legal request,
    revisits included, whose times follow from the recording.
    """
    columns: dict[str, list[np.ndarray]] = {f"{e}_{c}": [] for e in ESTIMATORS for c in ("index", "row")}
    columns["direct_seconds"] = []
    for (optimizer, recording), result in scores.results.items():
        place = (scores.optimizers.index(optimizer), scores.recordings.index(recording))
        for run, trace in enumerate(result.traces):
            columns["direct_index"].append(np.tile([*place, run], (len(trace.rows), 1)))
            columns["direct_row"].append(trace.rows)
            columns["direct_seconds"].append(trace.times)
        for run, trace in enumerate(result.atm_traces):
            asks = trace.rows if trace.asks is None else trace.asks
            columns["atm_index"].append(np.tile([*place, run], (len(asks), 1)))
            columns["atm_row"].append(asks)
    arrays = {name: np.concatenate(parts) for name, parts in columns.items() if parts}
    names = {"optimizers": np.array(scores.optimizers), "recordings": np.array(scores.recordings)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **names, **{k: _smallest(v) for k, v in arrays.items()})  # type: ignore[arg-type]
    return write_atomic(path, buffer.getvalue())


def _smallest(array: np.ndarray) -> np.ndarray:
    return array.astype(np.min_scalar_type(int(array.max(initial=0)))) if array.dtype.kind == "i" else array


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned with spaces, numbers to the right."""
    cells = [[str(c) for c in row] for row in (header, *rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    lines = [
        "  ".join(c.ljust(w) if j == 0 else c.rjust(w) for j, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write rows of the same columns as CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_atomic(path, buffer.getvalue())


def write_table(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Write rows as stem.csv and, where pyarrow is installed, stem.parquet; returns what was written."""
    written = [write_csv(rows, stem.with_suffix(".csv"))]
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return written
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([dict(r) for r in rows]), sink)
    return [*written, write_atomic(stem.with_suffix(".parquet"), sink.getvalue().to_pybytes())]


def write_provenance(folder: Path, command: str, config: Any) -> Path:
    """provenance.json: what ran, with which configuration, on what."""
    return write_json(folder / "provenance.json", {"command": command, "config": config, **provenance.stamp()})
