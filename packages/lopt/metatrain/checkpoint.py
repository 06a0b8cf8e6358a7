"""Files of a meta-training: a checkpoint to go on from, snapshots of the meta-weights, the curve. Old or new, never half."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..models.pretrained import write_atomic
from ..models.small_fc import StepScales

CHECKPOINT, CURVE, SNAPSHOTS = "checkpoint.pt", "curve.csv", "snapshots"


def save(folder: Path, name: str, state: Any) -> Path:
    """Write anything that torch.save takes.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the file that was there is as it was.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return write(folder / name, buffer.getvalue())


def write(path: Path, data: bytes) -> Path:
    """The bytes, or an OSError of one sentence that names the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        kept = "what was there before is untouched" if path.exists() else "nothing was written"
        raise OSError(error.errno, f"cannot write {path} ({error.strerror or error}); {kept}") from error
    return path


def load(path: Path) -> Any:
    """What `save` wrote.

    Raises:
        ValueError: no such file, or not one of ours.
    """
    try:
        return torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"there is no checkpoint {path} to go on from") from None
    except Exception as error:  # what torch's unpickler raises on half a file can be nearly anything
        raise ValueError(f"{path} is no checkpoint, or a damaged one ({type(error).__name__})") from error


def scales(state: Mapping[str, Any]) -> StepScales:
    """The scales of steps that a run's checkpoint was trained with."""
    return StepScales.said_by(state["settings"]["unroll"])  # runs from before there was a choice say none


def save_curve(folder: Path, rows: Sequence[Mapping[str, Any]], name: str = CURVE) -> Path:
    """Rows of numbers as CSV; the columns are those of the first row and whatever later rows add."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write(folder / name, text.getvalue().encode())
