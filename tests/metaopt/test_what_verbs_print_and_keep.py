"""What runs print and where they put things, of the parts that no whole run of a verb tests."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from metabench import folders, kernel
from metabench.files import read_json
from metaopt import command, console, tune

pytest.importorskip("torch", reason="`steps` needs torch")


def test_in_a_log_file_progress_is_a_line_every_tenth_of_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress("counting", 40) as update:
        for done in range(1, 41):
            update(done, f"at {done}")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "counting: 1/40  at 1" and lines[-1] == "counting: 40/40  at 40"
    assert len(lines) == 11


ENTRY = {"kernel": "k", "device": "d", "backend": "cpu", "shape_class": "any", "dtype": "float32", "time_ms": 1.0}


@pytest.mark.parametrize(("kept", "adopted"), [(True, False), (False, True), (True, True), (False, False)])
def test_an_entry_goes_where_it_is_asked_for(
    kept: bool, adopted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(kernel, "find", lambda name: kernel.Kernel(name, tmp_path / "kernels" / name))
    found: Any = SimpleNamespace(kernel="k", device="d", entry=lambda: ENTRY)
    places = tune.keep(found, OmegaConf.create({"keep": kept, "adopt": adopted}))
    wanted = {folders.data() / "tuned" / "k" / "d.json": kept, tmp_path / "kernels" / "k" / "tuned" / "d.json": adopted}
    assert {place: place.is_file() for place in wanted} == wanted and places == [
        p for p, is_kept in wanted.items() if is_kept
    ]
    assert all(read_json(place) == [ENTRY] for place in places)


def test_a_tuning_run_without_a_default_or_a_comparison_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = SimpleNamespace(
        kernel="k", time=1.5, configuration={"A": 1, "B": 2}, default_time=None, failures={}, evaluations=3, tuner="it",
        ended="error", error="KeyError: 'x'", speedup=None,
    )  # fmt: skip
    text = tune.describe(found)
    assert "default" not in text and "1.500 ms" in text and "A=1 B=2" in text
    assert text.endswith("3 evaluations by it (ended: error: KeyError: 'x'), failures: none")
    assert tune.result_line(found) == "k: best 1.500 ms"


def test_backends_that_disagree_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = importlib.import_module("metaopt.steps")
    agreement = steps.compare_backends(3)
    assert agreement.relative_difference < 1e-4 and len(agreement.losses) == 3
    train = steps._train

    def off(backend: str, count: int, seed: int) -> Any:
        start, after, losses = train("reference", count, seed)
        return start, [p + 1e-3 * (backend == "auto") for p in after], losses

    monkeypatch.setattr(steps, "_train", off)
    with pytest.raises(RuntimeError, match="backends disagree: 3 steps of a 64-128-10 network"):
        steps.compare_backends(3)


@pytest.mark.parametrize("reader", ["head -n 1", "true"])
def test_a_reader_that_has_seen_enough_is_no_error(reader: str) -> None:
    shown = f"{{ {sys.executable} -m metaopt.command spaces list; echo code $? >&2; }} | {reader}"
    done = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "code 0\n"


@pytest.mark.parametrize(
    ("missing", "told"),
    [("kernel_tuner.core", "metaopt: spaces needs the package 'kernel_tuner.core'"), ("metaopt.nope", "")],
)
def test_a_package_that_is_not_installed_is_named_with_the_way_out(
    missing: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(importlib, "import_module", fail)
    if not told:
        with pytest.raises(ModuleNotFoundError, match=r"metaopt\.nope"):
            command.main(["spaces", "list"])
        return
    assert command.main(["spaces", "list"]) == 2
    assert told in capsys.readouterr().err
