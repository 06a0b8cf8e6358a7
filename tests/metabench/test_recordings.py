"""A recording is whole and means the same after a round trip, or the error names the file and the entry."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from metabench import Recording, Space, UserError, load, save


@pytest.fixture
def cache(tmp_path: Path) -> dict:
    """A Kernel Tuner cache of two parameters with a failure in it."""

    def entry(x, time, **more):
        parts = {"compile_time": 100.0, "verification_time": 0, "framework_time": 1.5, "strategy_time": 0}
        return {"x": x, "mode": "row", "time": time, "times": [2.0, 3.0], "benchmark_time": 6.0, **parts, **more}

    entries = {"1,row": entry(1, 2.5), "2,row": entry(2, 2.0, **{"GFLOP/s": 8.0})}
    entries["4,row"] = {**entry(4, "CompilationFailedConfig"), "times": []}
    return {"device_name": "bench", "kernel_name": "toy", "tune_params_keys": ["x", "mode"], "cache": entries}


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_costs_are_the_parts_and_the_single_runs_but_not_benchmark_time(tmp_path: Path, cache: dict) -> None:
    recording = load(write(tmp_path / "c.json", cache))
    assert recording.values.tolist()[:2] == [2.5, 2.0]
    assert math.isnan(recording.values[2])
    assert recording.costs.tolist() == pytest.approx([0.1065, 0.1065, 0.1015])
    assert recording.status.tolist() == ["correct", "correct", "compile"]
    assert recording.metrics["GFLOP/s"][1] == 8.0


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_a_round_trip_loses_nothing(tmp_path: Path, cache: dict, name: str) -> None:
    first = load(write(tmp_path / "c.json", cache))
    again = load(save(first, tmp_path / name))
    for field in ("values", "costs", "status"):
        np.testing.assert_array_equal(getattr(first, field), getattr(again, field))
    np.testing.assert_array_equal(first.metrics["GFLOP/s"], again.metrics["GFLOP/s"])
    assert first.space.configurations == again.space.configurations
    assert [first.details.runs_of(r) for r in range(3)] == [again.details.runs_of(r) for r in range(3)]


def test_rows_are_joined_by_configuration_not_by_order(tmp_path: Path, cache: dict) -> None:
    shuffled = {**cache, "cache": dict(reversed(cache["cache"].items()))}
    a, b = load(write(tmp_path / "a.json", cache)), load(write(tmp_path / "b.json", shuffled))
    np.testing.assert_array_equal(a.values, b.values)


def test_a_metric_can_be_the_objective(tmp_path: Path, cache: dict) -> None:
    for entry in cache["cache"].values():
        entry["GFLOP/s"] = 3.0 * entry["x"]
    recording = load(write(tmp_path / "c.json", cache), objective="GFLOP/s")
    assert recording.maximize
    assert recording.losses.tolist() == [-3.0, -6.0, math.inf]


def test_an_open_cache_of_a_run_that_was_killed_is_read(tmp_path: Path, cache: dict) -> None:
    text = json.dumps(cache)
    path = tmp_path / "open.json"
    path.write_text(text.removesuffix("}}") + ",")
    assert len(load(path).space) == 3


def break_it(cache: dict, what: str) -> dict:
    entry = cache["cache"]["1,row"]
    match what:
        case "no keys":
            del cache["tune_params_keys"]
        case "empty":
            cache["cache"] = {}
        case "parameter":
            del entry["mode"]
        case "word":
            entry["time"] = "Exploded"
        case "no time":
            del entry["time"]
        case "no cost":
            for key in ("compile_time", "verification_time", "framework_time", "strategy_time", "times"):
                del entry[key]
        case "all failed":
            for e in cache["cache"].values():
                e["time"] = "RuntimeFailedConfig"
    return cache


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no keys", "is no Kernel Tuner cache"),
        ("empty", "is no Kernel Tuner cache"),
        ("parameter", r"entry '1,row': parameters mode are missing"),
        ("word", r"entry '1,row': unknown failure 'Exploded'; known: InvalidConfig"),
        ("no time", r"entry '1,row': no number under 'time'"),
        ("no cost", r"entry '1,row': no cost"),
        ("all failed", "no configuration was measured successfully"),
    ],
)
def test_a_bad_file_says_which_entry_and_what_was_expected(
    tmp_path: Path, cache: dict, what: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load(write(tmp_path / "bad.json", break_it(cache, what)))


@pytest.mark.parametrize("keep", [0.3, 0.9])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_truncated_file_is_named(tmp_path: Path, cache: dict, suffix: str, keep: float) -> None:
    raw = json.dumps(cache).encode()
    raw = gzip.compress(raw) if suffix.endswith("gz") else raw
    path = tmp_path / f"half{suffix}"
    path.write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(UserError, match=rf"half\{suffix} (is truncated|cannot be read|is not valid JSON)"):
        load(path)


def test_a_recording_that_lacks_configurations_of_its_space_says_how_many(tmp_path: Path, cache: dict) -> None:
    space = Space.from_dict({"x": [1, 2, 4, 8], "mode": ["row"]})
    with pytest.raises(UserError, match=r"lacks 1 of 4 configurations, the first \(8, 'row'\)"):
        load(write(tmp_path / "c.json", cache), space=space)


def test_the_real_recordings_have_their_published_figures(shared_dir: Path) -> None:
    path = shared_dir / "spaces" / "cachefiles" / "convolution_milo" / "A100.json.gz"
    recording: Recording = load(path)
    assert (len(recording.space), recording.failures) == (4_362, 161)
    assert (recording.optimum, recording.median) == pytest.approx((0.5536, 1.834), rel=1e-3)
    assert (np.median(recording.costs), recording.costs.mean()) == pytest.approx((2.40, 2.79), abs=0.01)
