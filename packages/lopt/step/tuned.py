"""Which configuration of a kernel to build: what tuning found for this device, backend, shape class and type.

A tuned file `DEVICE.json` holds a list of entries, one object each, written by `metaopt tune`:

    {"kernel": "lopt_small_fc_apply",     folder under kernels/
     "device": "amd-epyc-7b13-avx2",      `metabench.kernel.cpu_device()`: CPU model and vector set
     "backend": "cpu",
     "shape_class": "matrix",             SHAPE_CLASS of the kernel's reference.py: matrix, or any
     "dtype": "float32",
     "configuration": {"BLOCK": 32, ...}, tunable parameter -> value
     "time_ms": 9.1, "default_time_ms": 15.0,
     "versions": {"compiler": "...", ...}, "tuner": "...", "evaluations": 200, "seed": 0}

Read first: the user's data folder, $XDG_DATA_HOME/metaopt-toolkit/tuned/KERNEL/DEVICE.json; then what came with the
toolkit, kernels/KERNEL/tuned/DEVICE.json. All five keys must match, or the entry is not used; nor is it if the kernel's space
has since lost one of its parameters or values. The last match of a file wins: a later tuning is appended.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metabench import kernel as kernels


def user_folder(kernel: str) -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "metaopt-toolkit" / "tuned" / kernel


def lookup(kernel: str, device: str, backend: str, shape_class: str, dtype: str) -> dict[str, Any] | None:
    """The tuned configuration, or None."""
    wanted = {"kernel": kernel, "device": device, "backend": backend, "shape_class": shape_class, "dtype": dtype}
    for folder in (user_folder(kernel), kernels.find(kernel).tuned()):
        matches = [e for e in _entries(folder / f"{device}.json") if all(e.get(k) == v for k, v in wanted.items())]
        own = [e["configuration"] for e in matches if _is_possible(kernel, e["configuration"])]
        if own:
            return dict(own[-1])
    return None


def _is_possible(kernel: str, configuration: dict[str, Any]) -> bool:
    """Whether the kernel still has these parameters and values: an entry outlives the source that it was tuned on."""
    there = kernels.find(kernel).space_definition()["ConfigurationSpace"]["TuningParameters"]
    values = {p["Name"]: json.loads(p["Values"]) for p in there}
    return all(value in values.get(name, ()) for name, value in configuration.items())


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    try:
        entries = json.loads(path.read_text())
    except ValueError as e:
        warnings.warn(f"{path} is not read: {e}", stacklevel=2)
        return
    yield from (e for e in entries if isinstance(e, dict) and isinstance(e.get("configuration"), dict))
