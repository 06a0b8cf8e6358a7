"""Both formats in and out without loss, any metric as the objective, and errors that say which entry and what was expected."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from metabench import Recording, Space, UserError, folders, load, save
from metabench.details import PARTS
from metabench.recording import STATUSES

DATA = Path(__file__).resolve().parent / "data"


def entry(x: int, **more: object) -> dict:
    parts = {
        "compile_time": 100.0 + x,
        "verification_time": 2,
        "benchmark_time": 6.0,
        "framework_time": 1.5,
        "strategy_time": 0,
    }
    measured = {"time": 2.0 / x, "times": [2.0 / x, 2.5 / x], "nvml_energy": 3.0 * x, "clocks": [1, 2], "locked": True}
    return {"x": x, "mode": "row", **measured, **parts, "timestamp": f"2026-01-01 00:00:0{x}", **more}


FAILED = {"nvml_energy": 0.5, "times": []}


@pytest.fixture
def cache() -> dict:
    """One entry of every status that a cache can hold, with energy, a list, a truth value and a message among them."""
    words = [
        "CompilationFailedConfig",
        "RuntimeFailedConfig",
        "TimeoutFailedConfig",
        "VerificationFailedConfig",
        "InvalidConfig",
    ]
    entries = {f"{x},row": entry(x) for x in (1, 2)}
    entries |= {f"{x},row": entry(x, time=word, **FAILED) for x, word in enumerate(words, start=3)}
    entries["3,row"]["error"] = "no such register"
    head = {"device_name": "bench", "kernel_name": "toy", "problem_size": [64, 1], "flops": 4e9}
    return {**head, "tune_params_keys": ["x", "mode"], "tune_params": {}, "objective": "time", "cache": entries}


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def assert_same(a: Recording, b: Recording) -> None:
    assert a.space.configurations == b.space.configurations
    for name in ("values", "costs", "status"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (a.objective, a.unit, a.maximize) == (b.objective, b.unit, b.maximize)
    assert a.metrics.keys() == b.metrics.keys()
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name])
    assert a.details is not None
    assert b.details is not None
    for part in PARTS:
        np.testing.assert_array_equal(a.details.parts[part], b.details.parts[part])
    rows = range(len(a.space))
    assert [a.details.runs_of(r) for r in rows] == [b.details.runs_of(r) for r in rows]
    assert a.details.timestamps.tolist() == b.details.timestamps.tolist()
    assert a.details.extra == b.details.extra


@pytest.mark.parametrize("form", ["cache", "t4"])
@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_nothing_is_lost_on_the_way_out_and_in(tmp_path: Path, cache: dict, name: str, form: str) -> None:
    first = load(write(tmp_path / "c.json", cache))
    assert sorted(set(first.status)) == sorted(STATUSES)
    again = load(save(first, tmp_path / name, form))
    assert_same(first, again)
    assert again.meta["problem_size"] == [64, 1]
    assert again.details.extra[2]["error"] == "no such register"


@pytest.mark.parametrize("name", ["minimised", "maximised"])
@pytest.mark.parametrize("form", ["cache", "t4"])
def test_a_maximised_recording_stays_one(tmp_path: Path, name: str, form: str) -> None:
    first = load(DATA / f"{name}.json.gz")
    assert_same(first, load(save(first, tmp_path / f"{name}.json.gz", form)))


def test_t4_says_how_it_ended_in_its_own_words(tmp_path: Path, cache: dict) -> None:
    written = json.loads(save(load(write(tmp_path / "c.json", cache)), tmp_path / "t4.json", "t4").read_text())
    words = [r["invalidity"] for r in written["results"]]
    assert words == ["correct", "correct", "compile", "runtime", "timeout", "correctness", "constraints"]
    assert written["metadata"]["timeunit"] == "milliseconds"


def test_t4_is_what_the_published_schema_asks_for(tmp_path: Path, cache: dict) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner, which ships the schema, is not installed")
    (schema,) = (Path(kernel_tuner.__file__).parent / "schema" / "T4" / "1.0.0").glob("results*.json")
    path = save(load(write(tmp_path / "c.json", cache)), tmp_path / "t4.json", "t4")
    jsonschema.validate(json.loads(path.read_text()), json.loads(schema.read_text()))


def test_t4_times_are_read_in_the_files_unit(tmp_path: Path, cache: dict) -> None:
    first = load(write(tmp_path / "c.json", cache))
    content = json.loads(save(first, tmp_path / "t4.json", "t4").read_text())
    del content["metadata"]["timeunit"]  # seconds, the format's default
    for result in content["results"]:
        result["times"] = {
            k: [t / 1e3 for t in v] if isinstance(v, list) else v / 1e3 for k, v in result["times"].items()
        }
    np.testing.assert_allclose(load(write(tmp_path / "s.json", content)).costs, first.costs, rtol=1e-12)


def test_hub_files_in_both_formats_are_the_same_recording(shared_dir: Path) -> None:
    folder = shared_dir / "spaces" / "cachefiles" / "convolution_milo"
    definition = shared_dir / "spaces" / "kernels" / "convolution_milo.json"
    a, b = (load(folder / name, definition=definition) for name in ("A6000.json.gz", "A6000_T4.json.gz"))
    for name in ("values", "costs", "status"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_a_recording_without_a_definition_is_the_space_of_its_own_configurations(shared_dir: Path) -> None:
    recording = load(shared_dir / "spaces" / "cachefiles" / "gemm_clblast" / "RTX_Titan.json.gz")
    assert len(recording.space) == 17_956
    assert recording.space.restrictions == ()
    assert "GFLOP/s" in recording.metrics


# -- objectives -------------------------------------------------------------------------------------------------------


def test_k10_an_objective_that_is_not_stored_is_derived(tmp_path: Path, cache: dict) -> None:
    recording = load(write(tmp_path / "c.json", cache), objective="1e-9 * flops / (time * 1e-3)", maximize=True)
    assert recording.values[:2].tolist() == pytest.approx([2e3, 4e3])
    assert np.isnan(recording.values[2:]).all()
    assert recording.losses[1] == pytest.approx(-4e3)
    again = load(save(recording, tmp_path / "out.json"))
    assert_same(recording, again)


def test_energy_is_an_objective_to_minimise(tmp_path: Path, cache: dict) -> None:
    recording = load(write(tmp_path / "c.json", cache), objective="nvml_energy", maximize=False)
    assert recording.losses.tolist()[:3] == [3.0, 6.0, np.inf]
    assert recording.metrics["time"].tolist()[:2] == [2.0, 1.0]


@pytest.mark.parametrize("given", [None, False])
def test_k8_the_default_direction_can_be_stated(tmp_path: Path, cache: dict, given: bool | None) -> None:
    assert not load(write(tmp_path / "c.json", cache), objective="time", maximize=given).maximize


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("GFLOPS", r"entry '1,row': no number under 'GFLOPS'; known are flops, mode, nvml_energy, time, x"),
        ("time / nothing", r"no number under 'nothing'"),
        ("time.real", "uses Attribute|is no expression"),
        ("1 / (x - 1)", r"entry '1,row': '1 / \(x - 1\)' fails: ZeroDivisionError"),
    ],
)
def test_an_objective_that_cannot_be_had_is_said(tmp_path: Path, cache: dict, objective: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(write(tmp_path / "c.json", cache), objective=objective, maximize=True)


def test_the_direction_of_an_unknown_objective_must_be_said(tmp_path: Path, cache: dict) -> None:
    with pytest.raises(UserError, match="is a higher 'nvml_energy' better"):
        load(write(tmp_path / "c.json", cache), objective="nvml_energy")


# -- files as they are found ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", ",", ",\n", "\n}", "\n}\n}"])
def test_an_open_cache_is_read_however_it_was_left(tmp_path: Path, cache: dict, end: str) -> None:
    path = tmp_path / "open.json"
    path.write_text(json.dumps(cache).removesuffix("}}") + end)
    assert len(load(path).space) == 7


def test_m11_a_problem_size_of_another_type_is_no_reason_to_refuse(tmp_path: Path, cache: dict) -> None:
    assert load(write(tmp_path / "c.json", {**cache, "problem_size": "64"})).meta["problem_size"] == "64"


def test_parameters_in_another_order_than_the_definitions(tmp_path: Path, cache: dict) -> None:
    space = Space.from_dict({"mode": ["row"], "x": list(range(1, 8))})
    recording = load(write(tmp_path / "c.json", cache), space=space)
    assert recording.values[:2].tolist() == [2.0, 1.0]
    with pytest.raises(UserError, match="has the parameters x, mode; its space has x, y"):
        load(tmp_path / "c.json", space=Space.from_dict({"x": [1], "y": [1]}))


def break_t4(content: dict, what: str) -> dict:
    result = content["results"][1]
    match what:
        case "no results":
            content["results"] = []
        case "unit":
            content["metadata"]["timeunit"] = "fortnights"
        case "word":
            result["invalidity"] = "odd"
        case "configuration":
            del result["configuration"]
        case "parameters":
            result["configuration"] = {"x": 2}
        case "measurement":
            result["measurements"] = ["time"]
        case "no cost":
            result["times"] = {}
    return content


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no results", "is no T4 results file"),
        ("unit", "unknown timeunit 'fortnights'"),
        ("word", "result 1: unknown invalidity 'odd'; allowed: correct, compile"),
        ("configuration", "result 1: expected 'configuration' to be an object"),
        ("parameters", r"result 1: its parameters are \['x'\]"),
        ("measurement", "result 1: a measurement must be an object"),
        ("no cost", "result 1: no cost"),
    ],
)
def test_a_bad_t4_file_says_which_result(tmp_path: Path, cache: dict, what: str, message: str) -> None:
    good = json.loads(save(load(write(tmp_path / "c.json", cache)), tmp_path / "t4.json", "t4").read_text())
    with pytest.raises(UserError, match=message):
        load(write(tmp_path / "bad.json", break_t4(good, what)))


# -- the compact form -------------------------------------------------------------------------------------------------


def test_a_second_reading_is_equal_and_from_the_compact_form(tmp_path: Path, cache: dict) -> None:
    path = write(tmp_path / "c.json", cache)
    definition = write(
        tmp_path / "t1.json",
        {
            "ConfigurationSpace": {
                "TuningParameters": [{"Name": "x", "Values": "list(range(1, 8))"}, {"Name": "mode", "Values": ["row"]}],
                "Conditions": [{"Expression": "x > 0"}],
            }
        },
    )
    first = load(path, definition=definition)
    again = load(path, definition=definition)
    assert_same(first, again)
    assert (again.kernel, again.device) == (first.kernel, first.device)
    assert [r.text for r in again.space.restrictions] == ["x > 0"]
    assert again.space.neighbors(0).tolist() == first.space.neighbors(0).tolist()


def test_a_changed_file_is_read_anew(tmp_path: Path, cache: dict) -> None:
    path = write(tmp_path / "c.json", cache)
    load(path)
    cache["cache"]["1,row"]["time"] = 7.0
    assert load(write(path, cache)).values[0] == 7.0
    assert load(path, objective="nvml_energy", maximize=False).values[0] == 3.0


def test_a_damaged_compact_form_is_made_again(tmp_path: Path, cache: dict) -> None:
    path = write(tmp_path / "c.json", cache)
    first = load(path)
    kept = max((folders.cache() / "recordings").glob("*.npz"), key=lambda p: p.stat().st_mtime_ns)
    kept.write_bytes(kept.read_bytes()[:200])
    assert_same(first, load(path))


def test_a_second_reading_takes_milliseconds(shared_dir: Path) -> None:
    path = shared_dir / "spaces" / "cachefiles" / "convolution_milo" / "MI250X.json.gz"
    load(path)
    taken = []
    for _ in range(5):
        started = time.process_time()
        load(path)
        taken.append(time.process_time() - started)
    assert min(taken) < 0.05
