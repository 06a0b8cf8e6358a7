"""A configuration that does not compile, is wrong, crashes or hangs is a failed configuration and never the end of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evotune.measure import record, tune
from metabench import recording
from metabench.errors import UserError

EXPECTED = {
    0: ("correct", ""),
    1: ("compile", "faulty.cpp:9:2: error: #error this configuration is not meant to compile"),
    2: ("verification", "y: 1 of 64 values are wrong, the worst at (63,)"),
    3: ("runtime", "SIGSEGV"),
    4: ("timeout", "longer than 1.0 s"),
    5: ("runtime", "returned nan"),
    6: ("verification", "1 of 64"),
    7: ("correct", ""),
}


def test_all_failures_are_recorded_with_their_reason(faulty, quick, tmp_path: Path, capfd) -> None:
    kernel = faulty(list(EXPECTED))
    record(kernel, "native", tmp_path / "out.json.gz", workers=2, **quick)
    there = recording.load(tmp_path / "out.json.gz")
    for row, (mode, (status, reason)) in enumerate(EXPECTED.items()):
        said = there.details.extra.get(row, {}).get("error", "")
        assert there.space.describe(row)["MODE"] == mode
        assert there.status[row] == status, said
        assert reason in said
        assert np.isfinite(there.values[row]) == (status == "correct")
    assert there.costs[4] >= 1.0  # what hangs is paid for
    assert (there.costs > 0).all()
    assert capfd.readouterr() == ("", "")


def test_an_output_that_is_not_written_is_wrong(make_kernel, reference, quick, tmp_path: Path) -> None:
    lazy = 'extern "C" float lazy(float *y, const float *x, int n) { for (int i = 1; i < n; ++i) y[i] = 2 * x[i]; return 1; }'
    kernel = make_kernel("lazy", lazy, reference, {"P": [1, 2]})
    with pytest.raises(UserError, match="no configuration was measured successfully"):
        record(kernel, "native", tmp_path / "out.json", **quick)
    lines = (tmp_path / "out.json.part").read_text().splitlines()
    assert len(lines) == 3
    assert all("1 of 64 values are wrong, the worst at (0,): nan instead of" in line for line in lines[1:])


def test_a_kernel_that_cannot_be_measured_at_all_says_why(make_kernel, quick, tmp_path: Path) -> None:
    kernel = make_kernel("broken", "", "raise RuntimeError('no inputs today')", {"P": [1]})
    with pytest.raises(UserError, match="'broken' cannot be measured: RuntimeError: no inputs today"):
        record(kernel, "native", tmp_path / "out.json", **quick)


def test_an_answer_that_is_right_only_once_is_wrong(make_kernel, reference: str) -> None:
    forgetful = """
    extern "C" float forgetful(float *y, const float *x, int n) {
        static int runs = 0;
        for (int i = 0; i < n; ++i) y[i] = 2 * x[i] + (P == 2 && ++runs > n ? 1 : 0);
        return 1;
    }
    """
    found = tune(make_kernel("forgetful", forgetful, reference, {"P": [1, 2]}), "brute_force", evaluations=2, repeats=3)
    assert found.failures == {"verification": 1}
    assert "64 of 64 values are wrong" in found.outcomes[1].error
    assert found.outcomes[1].error.endswith("after 3 more runs")


def test_what_is_far_too_slow_is_timed_twice_and_no_more(faulty) -> None:
    found = tune(faulty([0], [1, 32, 2]), "brute_force", evaluations=3, repeats=6, cutoff=5.0)
    assert [len(outcome.times) for outcome in found.outcomes] == [6, 6, 2]
    assert found.outcomes[2].time == 0.5
