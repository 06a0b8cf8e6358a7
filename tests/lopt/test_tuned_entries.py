"""A tuned entry is used only if device, backend, shape class and type all match; the user's own comes first."""

from __future__ import annotations

import json

import pytest

from lopt.step import cpu, tuned
from metabench import kernel as kernels

KEYS = {
    "kernel": "lopt_small_fc_apply",
    "device": "a-cpu-avx2",
    "backend": "cpu",
    "shape_class": "matrix",
    "dtype": "float32",
}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(kernels.Kernel, "tuned", lambda self: tmp_path / "shipped")
    return tmp_path


def write(folder, *entries, device="a-cpu-avx2"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{device}.json").write_text(json.dumps(list(entries)))


def entry(block, **changes):
    return {**KEYS, **changes, "configuration": {"BLOCK": block}, "time_ms": 1.0}


def test_a_match_is_found_and_the_users_own_comes_first(folders):
    assert tuned.lookup(**KEYS) is None
    write(folders / "shipped", entry(32))
    assert tuned.lookup(**KEYS) == {"BLOCK": 32}
    write(tuned.user_folder("lopt_small_fc_apply"), entry(64), entry(128))
    assert tuned.lookup(**KEYS) == {"BLOCK": 128}, "the last of a file is the newest"


@pytest.mark.parametrize("key", list(KEYS))
def test_a_key_that_differs_misses(folders, key):
    write(folders / "shipped", entry(32, **{key: "other"}))
    assert tuned.lookup(**KEYS) is None


@pytest.mark.parametrize("configuration", [{"BLOCK": 32, "PREFETCH": 1}, {"BLOCK": 48}])
def test_an_entry_of_an_older_space_is_not_used(folders, configuration):
    """A parameter or a value that the kernel no longer has: the step would stop at its first build."""
    write(folders / "shipped", entry(64), {**entry(32), "configuration": configuration})
    assert tuned.lookup(**KEYS) == {"BLOCK": 64}


def test_a_damaged_file_is_named_and_not_used(folders):
    (folders / "shipped").mkdir()
    (folders / "shipped" / "a-cpu-avx2.json").write_text('[{"kernel":')
    with pytest.warns(UserWarning, match=r"a-cpu-avx2.json is not read"):
        assert tuned.lookup(**KEYS) is None


def test_the_step_takes_the_tuned_configuration(monkeypatch):
    write(tuned.user_folder("lopt_small_fc_apply"), entry(128), device="a-cpu-avx2")
    monkeypatch.setattr(kernels, "cpu_device", lambda flags: "a-cpu-avx2")
    assert cpu.configuration("lopt_small_fc_apply", None) == (("BLOCK", 128),)
    assert cpu.configuration("lopt_small_fc_apply", {"BLOCK": 32}) == (("BLOCK", 32),), "an explicit configuration wins"
