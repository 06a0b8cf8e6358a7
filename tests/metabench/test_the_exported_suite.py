"""The suite that others inherit passes what is sound, and each of its tests fails an optimizer that has the fault it is for."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable

import numpy as np
import pytest

from metabench.testing import OptimizerSuite, recording


class TestRandomSearch(OptimizerSuite):
    def make(self):
        def optimizer(func, searchspace):
            for configuration in searchspace.get_random_sample(searchspace.size):
                func(configuration)

        return optimizer


class TestHillClimbing(OptimizerSuite):
    """Restarts, revisits, neighbours that may not exist."""

    def make(self):
        def optimizer(func, searchspace):
            while func.budget_spent_fraction < 1:
                here = searchspace.get_random_sample(1)[0]
                value = func(here)
                for step in searchspace.get_neighbors(here, "Hamming"):
                    if (found := func(step)) < value:
                        here, value = step, found

        return optimizer


def breaks_on_two_values(func, searchspace):
    for values in searchspace.tune_params.values():
        random.sample(values, 3)


def overruns(func, searchspace):
    return [func(c) for c in searchspace.list[:5]]


def gives_up(func, searchspace):
    for c in searchspace.get_random_sample(min(8, searchspace.size)):
        func(c)


def unlucky(func, searchspace):
    found = [func(c) for c in searchspace.get_random_sample(min(20, searchspace.size))]
    if not any(map(math.isfinite, found)):
        raise IndexError("no best")
    for c in searchspace.get_random_sample(searchspace.size):
        func(c)


def divides_by_the_spread(func, searchspace):
    found = [func(c) for c in searchspace.get_random_sample(20)]
    1 / (max(found) - min(found))


def takes_a_logarithm(func, searchspace):
    for c in searchspace.get_random_sample(searchspace.size):
        if math.isfinite(loss := func(c)):
            math.log(loss)


def ignores_restrictions(func, searchspace):
    while True:
        func(tuple(random.choice(v) for v in searchspace.tune_params.values()))


def asks_again(func, searchspace):
    while True:
        func(searchspace.list[0])


def swallows_everything(func, searchspace):
    while True:
        with contextlib.suppress(BaseException):
            func(searchspace.list[0])


def unseeded(func, searchspace):
    for row in np.random.default_rng().permutation(searchspace.size):
        func(searchspace.list[row])


def always_the_same(func, searchspace):
    for c in searchspace.list:
        func(c)


def sorts_the_space(func, searchspace):
    searchspace.list.reverse()
    func(searchspace.list[0])


def sleeps(func, searchspace):
    time.sleep(60)


def spins(func, searchspace):
    for _ in itertools.count():
        pass


FAULTS: list[tuple[Callable, str, tuple]] = [
    (breaks_on_two_values, "test_it_runs_on_every_kind_of_space", ("one- and two-valued parameters",)),
    (gives_up, "test_a_budget_in_seconds_is_spent", ()),
    (unlucky, "test_failures_are_survived", (0.9999,)),
    (unlucky, "test_failures_first_are_survived", ()),
    (divides_by_the_spread, "test_equal_values_are_survived", ()),
    (takes_a_logarithm, "test_maximising_is_survived", ()),
    (ignores_restrictions, "test_it_asks_for_configurations", ()),
    (asks_again, "test_it_does_not_only_ask_for_what_it_knows", ()),
    (overruns, "test_a_tiny_budget_is_kept", (7,)),
    (swallows_everything, "test_the_end_is_the_end", ()),
    (unseeded, "test_a_seed_decides_the_run", ()),
    (always_the_same, "test_a_seed_decides_the_run", ()),
    (sorts_the_space, "test_the_search_space_is_left_as_it_was", ()),
    (sleeps, "test_a_budget_larger_than_the_space_ends", ()),
    (spins, "test_a_budget_larger_than_the_space_ends", ()),
]


@pytest.mark.parametrize(("optimizer", "test", "arguments"), FAULTS, ids=lambda v: getattr(v, "__name__", None))
def test_each_hazard_is_caught(
    optimizer: Callable, test: str, arguments: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metabench import testing

    fresh = {name: type(s)(s.names, s.values, s.restrictions, s.table) for name, s in testing.SPACES.items()}
    monkeypatch.setattr(testing, "SPACES", fresh)  # some of these spoil the space

    class Suite(OptimizerSuite):
        seconds = 0.3

        def make(self):
            return optimizer

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Suite(), test)(*arguments)


def test_the_invented_recordings_are_what_they_say() -> None:
    from metabench.testing import SPACES

    one = recording(SPACES["a few hundred"], failing=0.3, maximize=True)
    assert 0.2 < one.failures / len(one.space) < 0.4
    assert one.optimum == np.nanmax(one.values)
    assert recording(SPACES["a few hundred"], failing=1.0).failures == len(one.space) - 1
