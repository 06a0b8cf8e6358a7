"""The measurement itself: rows of every contender, ratios to the first, memory in a fresh process."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lopt import bench


@pytest.fixture(autouse=True)
def a_small_model(monkeypatch):
    monkeypatch.setitem(bench.MODELS, "tiny", lambda: bench.gpt(1, 16, 32, 8))


def test_the_gpt_is_the_one_that_was_promised():
    assert sum(math.prod(s) for s in bench.gpt()) == 10_101_760 and len(bench.gpt()) == 76


def test_rows_and_ratios():
    rows = bench.bench(["small_fc", "velo", "celo2_base"], "tiny", rounds=2, with_memory=False)
    assert [r["optimizer"] for r in rows] == ["adamw", "small_fc", "velo", "celo2_base"]
    assert rows[0]["ratio"] == 1 and all(r["cpu_ms"] > 0 and r["ratio"] > 0 for r in rows)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure a peak")
def test_memory_is_state_and_peak():
    row = bench.memory("adamw", "mlp1m", steps=1)
    assert row["state_mb"] == pytest.approx(8.0, abs=0.3) and row["peak_growth_mb"] > 2


def test_the_share_of_the_peak_is_a_share():
    """Nothing does more multiply-adds than the probe; a probe that the compiler had emptied would be beaten."""
    found = bench.fma_share(rounds=1)
    assert 0.05 < found["share"] < 1.0 and 1 < found["apply_gflops"] < found["peak_gflops"] < 1000


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure a peak")
def test_scratch_is_what_is_there_beside_the_state():
    """A million parameters have 16 MB of state; the compiled step needs a small part of that beside it."""
    row = bench.memory("small_fc", "mlp1m", steps=1)
    assert row["state_mb"] > 16 and 0 <= row["scratch_mb"] < 8


def test_two_threads_beside_one():
    row = bench.threads_speedup("small_fc", "tiny", rounds=1)
    assert row["speedup"] > 0 and row["threads"] == 2


def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(ValueError, match=r"unknown contender 'adamv'; allowed: adamw, "):
        bench.bench(["adamv"], "tiny", with_memory=False)
    with pytest.raises(ValueError, match=r"unknown model 'gpt5'; allowed: gpt10m"):
        bench.bench(["velo"], "gpt5")
