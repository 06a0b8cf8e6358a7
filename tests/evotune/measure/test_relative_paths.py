"""Hydra runs jobs in other folders, and workers have folders of their own: relative paths mean what they meant to the caller."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotune.measure import record, tune
from metabench.kernel import Kernel


def test_from_another_folder(
    faulty: Callable[..., Kernel], quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = faulty([0], [1, 2])
    header = kernel.folder / "doubling.h"  # included by the source: found although the source is compiled elsewhere
    header.write_text("")
    source = kernel.source(".cpp")
    source.write_text('#include "doubling.h"\n' + source.read_text())
    elsewhere = tmp_path / "else" / "where"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    relative = Kernel("faulty", Path(os.path.relpath(kernel.folder)))
    record(relative, "native", "out/r.json", **quick)
    found = tune(relative, "random_sample", evaluations=2, folder="tuning", repeats=1)
    assert sorted(str(p.relative_to(elsewhere)) for p in elsewhere.rglob("*.json")) == sorted(
        ["out/r.json", "tuning/t4.json", f"tuning/tuned/{found.device}.json"]
    )
