"""A ratio must survive a clock that drifts: everything slows down by half on the way, the ratio stays."""

from __future__ import annotations

import itertools

import pytest

from metabench import UserError
from metabench.timing import interleaved


def test_a_drifting_machine_does_not_change_the_ratio() -> None:
    now, speed = [0.0], itertools.count(1)

    def busy(units: float):
        def call() -> None:
            now[0] += units * (1 + next(speed) / 100)

        return call

    timing = interleaved({"a": busy(1.0), "b": busy(3.0)}, rounds=31, clock=lambda: now[0])
    median, low, high = timing.ratio("b")
    assert median == pytest.approx(3.0, rel=0.03)
    assert low <= median <= high
    assert timing.seconds[0].max() / timing.seconds[0].min() > 1.3


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(UserError, match="at least one candidate"):
        interleaved({})
