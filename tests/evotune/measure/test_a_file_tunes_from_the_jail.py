"""A file that nobody vouches for tunes live: it asks from the jail, this process measures, and a failure keeps what was found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotune.jail import JailLimits
from evotune.measure import Interrupted, tune
from evotune.measure.jailed import JailedTuner
from metabench.errors import UserError
from metabench.kernel import Kernel

SAMPLER = """
import random
class Sampler:
    def __call__(self, func, searchspace):
        for point in searchspace.get_random_sample(50):
            func(point)
"""
BROKEN = {
    "timeout: it used up its 1 CPU seconds (line 5: while 1: pass)": "while 1: pass",
    "crash: ZeroDivisionError: division by zero (line 5: 1 / 0)": "1 / 0",
    "forbidden: Forbidden: open is not allowed (line 5: ": "print.__self__.open('/etc/passwd')",
    "crash: SystemExit: mine": "raise SystemExit('mine')",
}


def jailed(folder: Path, source: str, **limits: float) -> JailedTuner:
    path = folder / "mine.py"
    path.write_text(source)
    return JailedTuner(str(path), JailLimits(**limits) if limits else None)


def test_it_tunes_within_its_budget_and_a_seed_decides(faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel, tuner = faulty([0, 1, 2], [1, 2, 4, 8, *range(10, 27)]), jailed(tmp_path, SAMPLER)
    first, again, other = (
        tune(kernel, tuner, evaluations=6, seed=seed, repeats=1, finalists=0, name="mine") for seed in (3, 3, 4)
    )
    asked = [[o.configuration for o in found.outcomes] for found in (first, again, other)]
    assert asked[0] == asked[1] != asked[2]
    assert (first.evaluations, first.ended, first.error, first.tuner) == (6, "evaluations", "", "mine")
    assert first.time == min(o.time for o in first.outcomes if o.time is not None)
    assert first.outcomes[-1].strategy_time > 0


def test_one_evaluation_is_the_default_and_no_fault_of_the_file(faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    found = tune(faulty([0, 2]), jailed(tmp_path, SAMPLER), evaluations=1, repeats=1, finalists=0)
    assert (found.evaluations, found.ended, found.error) == (1, "evaluations", "")


def test_answers_are_those_of_this_process(faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    source = """
class Mine:
    def __call__(self, func, searchspace):
        answers = [func((0, 2)), func([0.0, 2.0]), func([2, 1]), func((7, 7)), func(None)]
        assert answers == [0.5, 0.5] + 3 * [float("inf")], answers
        assert 0 < func.budget_spent_fraction < 1
"""
    found = tune(faulty([0, 2], [1, 2]), jailed(tmp_path, source), evaluations=10, repeats=1, finalists=0)
    assert (found.evaluations, found.revisits, found.illegal, found.error) == (3, 1, 2, "")
    assert found.ended == "returned"


@pytest.mark.parametrize("told", BROKEN)
def test_a_failure_is_told_with_its_line_and_keeps_what_was_found(
    told: str, faulty: Callable[..., Kernel], tmp_path: Path
) -> None:
    source = "class X:\n    def __call__(self, func, searchspace):\n        func((0, 4))\n\n        "
    found = tune(
        faulty([0, 2], [1, 2, 4]),
        jailed(tmp_path, source + BROKEN[told], cpu_seconds=1),
        evaluations=9,
        repeats=1,
        finalists=0,
    )
    assert found.ended == "error" and found.error.startswith(f"CandidateFailed: {told}")
    assert found.configuration == {"MODE": 0, "UNROLL": 4} and found.evaluations == 2


def test_measuring_takes_none_of_its_time(faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    tuner = jailed(tmp_path, SAMPLER, wall_seconds=1.0)
    slow: Any = lambda *_: time.sleep(0.3)  # noqa: E731
    found = tune(faulty([0], list(range(1, 30))), tuner, evaluations=6, repeats=1, finalists=0, progress=slow)
    assert (found.evaluations, found.ended, found.error) == (6, "evaluations", "")


@pytest.mark.parametrize("error", [UserError("the disk is full"), RuntimeError("ours"), Interrupted(15)])
def test_what_goes_wrong_here_is_not_blamed_on_the_file(
    error: BaseException, faulty: Callable[..., Kernel], tmp_path: Path
) -> None:
    def fail(done: int, *_: Any) -> None:
        if done == 3:
            raise error

    def run() -> Any:
        return tune(
            faulty([0], list(range(1, 30))),
            jailed(tmp_path, SAMPLER),
            evaluations=6,
            repeats=1,
            finalists=0,
            progress=fail,
        )

    if isinstance(error, UserError):
        with pytest.raises(UserError, match="the disk is full"):
            run()
        return
    found = run()
    assert (found.ended, found.error) == (
        ("interrupted", "") if isinstance(error, Interrupted) else ("error", "RuntimeError: ours")
    )
    assert found.evaluations == 3


def test_what_the_jail_does_not_take_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"mine.py cannot run in the jail: import: torch .* say jail=false if you trust"
    ):
        jailed(tmp_path, "import torch\n" + SAMPLER)
    with pytest.raises(UserError, match="there is no file"):
        JailedTuner(str(tmp_path / "gone.py"))
