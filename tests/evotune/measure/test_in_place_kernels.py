"""An in-place kernel that is tuned would apply its update once per trial: its arguments are restored before every run."""

from __future__ import annotations

from pathlib import Path

from evotune.measure import record, tune

STEP = """
extern "C" float step(float *p, const float *g, int *runs, int n) {
    for (int i = 0; i < n; ++i) p[i] -= 1e-3f * g[i] * (SCALE == 1 ? 1 : 2);
    return ++runs[0];  // "milliseconds": how often the arguments have been used
}
"""
REFERENCE = """
import numpy as np
OUTPUTS, RTOL, ATOL = ("p", "runs"), 0.0, 1e-7
def inputs(size=None, seed=0):
    n = 5
    return {"p": np.ones(n, np.float32), "g": np.full(n, 1e-3, np.float32), "runs": np.zeros(1, np.int32), "n": np.int32(n)}
def expected(inputs):
    return {"p": inputs["p"] - np.float32(1e-3) * inputs["g"], "runs": inputs["runs"] + 1}
"""


def test_every_run_starts_from_the_first_arguments(make_kernel, tmp_path: Path) -> None:
    kernel = make_kernel("step", STEP, REFERENCE, {"SCALE": [1, 2]})
    there = record(kernel, "native", tmp_path / "out.json", repeats=5)
    assert there.details.runs_of(0) == [1.0] * 5
    assert there.status.tolist() == ["correct", "verification"]


def test_the_final_comparison_restores_them_too(make_kernel) -> None:
    kernel = make_kernel("step", STEP, REFERENCE, {"SCALE": [1], "SAME": [0, 1]})
    found = tune(kernel, "brute_force", evaluations=2, repeats=2, rounds=4)
    assert found.time == found.default_time == 1.0
    assert found.speedup == (1.0, 1.0, 1.0)
