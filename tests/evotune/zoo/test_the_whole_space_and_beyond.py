"""An optimizer that repeats itself, or stops early, never measures the last configuration; one that is careless runs past it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from metabench.replay import Limits, Stop, replay
from metabench.searchspace import Searchspace
from metabench.testing import SPACES, recording


@pytest.mark.parametrize(
    "space", ["twelve points", "isolated points", "one configuration", "strings, truth values, floats"]
)
def test_all_of_a_small_space_is_measured_once(make: Callable[[], Any], space: str) -> None:
    on = recording(SPACES[space], failing=0.3)
    trace = replay(make(), on, Limits(), 3)
    assert not trace.error
    assert sorted(trace.rows.tolist()) == list(range(len(on.space)))


@pytest.mark.parametrize("evaluations", [1, 2, 8, 50])
def test_a_budget_is_used_up(make: Callable[[], Any], evaluations: int) -> None:
    trace = replay(make(), recording(SPACES["a few hundred"]), Limits(evaluations=evaluations), 0)
    assert (len(trace.rows), trace.error) == (evaluations, "")


def test_nothing_is_asked_twice(make: Callable[[], Any]) -> None:
    trace = replay(make(), recording(SPACES["a few hundred"], failing=0.5), Limits(evaluations=80), 0)
    assert (trace.revisits, trace.illegal) == (0, 0)


def test_nineteen_in_twenty_fail(make: Callable[[], Any]) -> None:
    trace = replay(make(), recording(SPACES["a few hundred"], failing=0.95), Limits(evaluations=120), 0)
    assert (len(trace.rows), trace.error) == (120, "")


@pytest.mark.parametrize("failure", [np.inf, np.nan, sys.float_info.max])
def test_nothing_is_valid(make: Callable[[], Any], failure: float) -> None:
    """However a caller says that it failed."""
    asked = []

    class Func:
        budget_spent_fraction = 0.0

        def __call__(self, config: Any, check_restrictions: bool = True) -> float:
            asked.append(config)
            if len(asked) > 60:
                raise Stop("budget")
            return failure

    with pytest.raises(Stop):
        make()(Func(), Searchspace(SPACES["a few hundred"], 0))
    assert len(set(asked)) == 61


def test_negative_costs_are_a_maximised_objective(make: Callable[[], Any]) -> None:
    on = recording(SPACES["a few hundred"], maximize=True)
    trace = replay(make(), on, Limits(evaluations=150), 0)
    assert not trace.error
    assert np.nanmax(on.values[trace.rows]) >= np.nanquantile(on.values, 0.97)


def test_the_best_is_returned(make: Callable[[], Any]) -> None:
    on = recording(SPACES["twelve points"], failing=0.3)
    returned: list[Any] = []
    replay(lambda func, space: returned.append(make()(func, space)), on, Limits(calls=10_000), 0)
    if returned:  # the run may end by the replay's own stop, when nothing is left
        assert returned[0][1] == on.losses.min()


SIGNS = {
    "minimised, positive": lambda cost: cost,
    "minimised, negative": lambda cost: -1.0 / cost,
    "minimised, either sign": lambda cost: cost - 2.0,
}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("failing", [0.0, 0.3, 0.95])
def test_any_space_any_sign_any_failures(make: Callable[[], Any], space: str, sign: str, failing: float) -> None:
    """Failures answered as infinity, as NaN and as the largest float, in turns; asked on until the space is used up."""
    on = recording(SPACES[space], failing=failing, seed=7)
    answers = [math.inf, math.nan, sys.float_info.max]
    asked: list[Any] = []

    class Func:
        budget_spent_fraction = 0.5

        def __call__(self, config: Any, check_restrictions: bool = True) -> float:
            if len(asked) == min(50, len(on.space)) + 1:
                raise Stop("budget")
            asked.append(tuple(config))
            loss = float(on.losses[on.space.find(tuple(config))])
            return SIGNS[sign](loss) if math.isfinite(loss) else answers[len(asked) % 3]

    best = None
    with contextlib.suppress(Stop):
        best = make()(Func(), Searchspace(SPACES[space], 1))
    assert len(set(asked)) >= min(50, len(on.space)), "it gave up before the budget or the space ended"
    assert best is None or best[0] in asked
