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
from .score import Scores

Row = dict[str, Any]


def score_rows(scores: Scores) -> list[Row]:
    """One row per optimizer and recording: P with its interval, own time per evaluation, how often the optimum was found."""
    rows = []
    for i, optimizer in enumerate(scores.optimizers):
        for j, recording in enumerate(scores.recordings):
            traces, estimate = scores.traces[optimizer, recording], scores.on(optimizer, recording)
            evaluations = sum(len(t.rows) for t in traces)
            rows.append(
                {
                    "optimizer": optimizer, "space": recording, "repeats": scores.repeats, "seed": scores.seed,
                    "P_direct": estimate.mean, "P_direct_low": estimate.low, "P_direct_high": estimate.high,
                    "overhead_ms": 1e3 * sum(t.overhead for t in traces) / max(evaluations, 1),
                    "found_optimum": float(np.isclose(scores.curves[i, j, :, -1], 1.0).mean()),
                }
            )  # fmt: skip
    return rows


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned with spaces, numbers to the right."""
    cells = [[str(c) for c in row] for row in (header, *rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    lines = [
        "  ".join(c.ljust(w) if j == 0 else c.rjust(w) for j, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def write_table(rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Write rows as stem.csv and, where pyarrow is installed, stem.parquet; returns what was written."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    written = [write_atomic(stem.with_suffix(".csv"), buffer.getvalue())]
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
