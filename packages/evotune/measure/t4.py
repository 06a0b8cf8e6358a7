"""Outcomes in T4, the output format that auto-tuners share, through Kernel Tuner's own writer and with what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernel_tuner.file_utils import get_t4_results
from kernel_tuner.util import NpEncoder

from metabench.files import write_atomic
from metabench.space import Space

from .outcome import Outcome
from .runner import kernel_tuner_result

_INVALIDITY = {"verification": "correctness"}  # T4's word; the other statuses are T4's own


def to_t4(outcomes: Iterable[Outcome], space: Space) -> dict[str, Any]:
    """Outcomes as a T4 object. Kernel Tuner knows no wrong answers and no time-outs: their words are put in here."""
    outcomes = list(outcomes)
    document = get_t4_results([kernel_tuner_result(o) for o in outcomes], space.tune_params, "time")
    for entry, outcome in zip(document["results"], outcomes, strict=True):
        entry["invalidity"] = _INVALIDITY.get(outcome.status, outcome.status)
        entry["correctness"] = int(outcome.status != "verification")
        entry["measurements"] = [m for m in entry["measurements"] if m["name"] != "__error__"]
        if outcome.error:
            entry["measurements"].append({"name": "error", "value": outcome.error, "unit": ""})
    return document


def write_t4(path: Path | str, outcomes: Iterable[Outcome], space: Space) -> Path:
    """Write outcomes as a T4 file."""
    return write_atomic(path, json.dumps(to_t4(outcomes, space), cls=NpEncoder, indent=1) + "\n")
