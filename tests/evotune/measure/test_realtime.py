"""Real-time priority is for the timed runs alone, and asked for in vain it is refused before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from evotune.measure.realtime import realtime
from evotune.measure.tuner import tune
from metabench.errors import UserError
from metabench.kernel import Kernel


def allowed() -> bool:
    try:
        with realtime():
            return True
    except UserError:
        return False


def test_the_policy_is_put_back() -> None:
    if not allowed():
        pytest.skip("needs root or CAP_SYS_NICE on Linux")
    before = os.sched_getscheduler(0)
    with realtime():
        assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
    assert os.sched_getscheduler(0) == before


def test_it_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    with pytest.raises(UserError, match="root or CAP_SYS_NICE"), realtime():
        pytest.fail("it went on")
    with realtime(wanted=False):
        pass


def test_tuning_with_it_is_right_or_refused(faulty: Callable[..., Kernel]) -> None:
    kernel = faulty([0, 2], [1, 2])
    if not allowed():
        with pytest.raises(UserError, match="CAP_SYS_NICE"):
            tune(kernel, "random_sample", evaluations=2, repeats=1, realtime=True)
        return
    found = tune(kernel, "random_sample", evaluations=4, repeats=1, realtime=True, rounds=3)
    assert found.configuration == {"MODE": 0, "UNROLL": 2}
