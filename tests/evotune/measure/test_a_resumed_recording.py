"""A recording that was killed and taken up again equals an unbroken one, times apart, and measures nothing twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotune.measure import Outcome, record
from metabench import recording
from metabench.errors import UserError
from metabench.kernel import Kernel


def test_it_equals_an_unbroken_one(faulty: Callable[..., Kernel], quick: dict[str, Any], tmp_path: Path) -> None:
    kernel = faulty([0, 1, 2], [1, 2])
    done: list[Outcome] = []

    def stop_at_three(count: int, total: int, outcome: Outcome) -> None:
        done.append(outcome)
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(kernel, "native", tmp_path / "broken.json", progress=stop_at_three, workers=1, **quick)
    assert not (tmp_path / "broken.json").exists()
    with (tmp_path / "broken.json.part").open("a") as journal:
        journal.write('{"pass": 0, "row": 5, "configura')  # killed while it wrote this
    resumed = record(kernel, "native", tmp_path / "broken.json", progress=lambda *a: done.append(a[2]), **quick)
    straight = record(kernel, "native", tmp_path / "straight.json", workers=2, **quick)

    assert len(done) == len(resumed.space) == 6
    assert resumed.space.configurations == straight.space.configurations
    assert resumed.status.tolist() == straight.status.tolist()
    assert np.array_equal(np.isnan(resumed.values), np.isnan(straight.values))
    assert _without_times(tmp_path / "broken.json") == _without_times(tmp_path / "straight.json")
    assert not list(tmp_path.glob("*.part"))


def test_sigterm_keeps_what_is_measured(faulty: Callable[..., Kernel], quick: dict[str, Any], tmp_path: Path) -> None:
    kernel = faulty([0], list(range(1, 15)))
    script = (
        "import sys; sys.modules['torch'] = None  # not needed, and slow to import\n"
        "from evotune.measure import record; from metabench.kernel import Kernel; from pathlib import Path\n"
        f"record(Kernel('faulty', Path({str(kernel.folder)!r})), 'native', {str(tmp_path / 'out.json')!r}, repeats=2,\n"
        "       progress=lambda n, *_: print(n, flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "2":
            process.send_signal(signal.SIGTERM)
            break
    _, errors = process.communicate(timeout=30)
    assert "Interrupted: stopped by SIGTERM" in errors
    measured = len((tmp_path / "out.json.part").read_text().splitlines()) - 1
    assert 2 <= measured < 14
    counts: list[int] = []
    record(kernel, "native", tmp_path / "out.json", progress=lambda n, *_: counts.append(n), **quick)
    assert counts[0] == measured + 1


def test_a_finished_recording_is_not_measured_again(
    faulty: Callable[..., Kernel], quick: dict[str, Any], tmp_path: Path
) -> None:
    kernel, out = faulty([0], [1, 2]), tmp_path / "out.json.gz"
    first = record(kernel, "native", out, **quick)
    again = record(kernel, "native", out, progress=lambda *_: pytest.fail("measured again"), **quick)
    assert np.array_equal(first.values, again.values)
    source = kernel.source(".cpp")
    source.write_text(source.read_text() + "// changed\n")
    with pytest.raises(UserError, match="another source_sha256"):
        record(kernel, "native", out, **quick)
    assert len(record(kernel, "native", out, overwrite=True, **quick).space) == 2


def test_a_journal_of_something_else_is_refused(
    faulty: Callable[..., Kernel], quick: dict[str, Any], tmp_path: Path
) -> None:
    kernel = faulty([0])
    (tmp_path / "out.json.part").write_text('{"kernel_name": "another"}\n')
    with pytest.raises(UserError, match="begun with another"):
        record(kernel, "native", tmp_path / "out.json", **quick)


def test_of_several_passes_the_fastest_counts(
    faulty: Callable[..., Kernel], quick: dict[str, Any], tmp_path: Path
) -> None:
    measured: list[Outcome] = []
    there = record(
        faulty([0, 2]), "native", tmp_path / "out.json", passes=3, progress=lambda *a: measured.append(a[2]), **quick
    )
    assert len(measured) == 6
    assert there.values[0] == round(min(o.time for o in measured if o.time is not None), 5)
    assert recording.load(tmp_path / "out.json").meta["passes"] == 3


def _without_times(path: Path) -> list[Any]:
    entries = json.loads(path.read_text())["cache"]
    keys = ("time", "times", "timestamp", "GFLOP/s")
    return [
        (key, {k: v for k, v in e.items() if k not in keys and not k.endswith("_time")}) for key, e in entries.items()
    ]
