"""No optimizer, however it asks, gets more evaluations than the budget, and none of them runs for ever."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest

from evotune.measure import tune
from metabench.kernel import Kernel


def asks_again(func: Any, searchspace: Any) -> None:
    point = searchspace.get_random_sample(1)[0]
    while func.budget_spent_fraction < 1:
        func(point)


def swallows_the_end(func: Any, searchspace: Any) -> None:
    while True:
        with contextlib.suppress(Exception):
            func(searchspace.get_random_sample(1)[0])


def asks_for_what_is_illegal(func: Any, searchspace: Any) -> None:
    while True:
        assert func((7, 7)) == math.inf


def asks_for_nonsense(func: Any, searchspace: Any) -> None:
    for point in ((math.nan, math.nan), None, (), "ab", [[1], {}], (1, 2, 3)):
        assert func(point) == math.inf
    while True:
        func((math.nan, 1))


def raises_its_budget(func: Any, searchspace: Any) -> None:
    func.tuning_options.budget.max_fevals = 10**9
    for point in searchspace.list:
        func(point)


def returns_at_once(func: Any, searchspace: Any) -> None:
    return None


def fails(func: Any, searchspace: Any) -> None:
    raise ZeroDivisionError("mine")


def asks_for_all_at_once(func: Any, searchspace: Any) -> None:
    func.eval_all(searchspace.list)


@pytest.mark.parametrize(
    ("optimizer", "ended", "evaluations"),
    [
        (asks_again, "calls", 2),
        (swallows_the_end, "evaluations", 4),
        (asks_for_what_is_illegal, "calls", 1),
        (asks_for_nonsense, "calls", 1),
        (raises_its_budget, "evaluations", 4),
        (returns_at_once, "returned", 1),
        (fails, "error", 1),
        (asks_for_all_at_once, "evaluations", 4),
        ("genetic_algorithm", "evaluations", 4),  # its population is 26: more than the budget, asked for at once
        ("brute_force", "evaluations", 4),  # it refuses a number of evaluations
        ("simulated_annealing", "evaluations", 4),
    ],
)
def test_it_ends_within_the_budget(optimizer: Any, ended: str, evaluations: int, faulty: Callable[..., Kernel]) -> None:
    kernel = faulty([0, 2], list(range(1, 31)))
    found = tune(kernel, optimizer, evaluations=4, repeats=1, finalists=0)
    assert found.evaluations == len(found.outcomes) <= 4
    assert found.ended == ended
    assert found.evaluations == evaluations
    assert found.outcomes[0].configuration == {"MODE": 0, "UNROLL": 1}  # the default comes first, whoever asks
    assert found.error == ("ZeroDivisionError: mine" if optimizer is fails else "")


def test_the_whole_space_is_enough(faulty: Callable[..., Kernel]) -> None:
    found = tune(faulty([0], [1, 2, 4]), swallows_the_end, evaluations=50, repeats=1, finalists=0)
    assert (found.evaluations, found.ended) == (3, "exhausted")
    assert found.configuration == {"MODE": 0, "UNROLL": 4}


def test_values_are_taken_by_equality(faulty: Callable[..., Kernel]) -> None:
    answers = []

    def optimizer(func: Any, searchspace: Any) -> None:
        answers.extend([func([0.0, 2.0]), func((0, 2)), func([2, 1])])

    found = tune(faulty([0, 2], [1, 2]), optimizer, evaluations=10, repeats=1, finalists=0)
    assert answers[0] == answers[1] < math.inf
    assert answers[2] == math.inf  # a wrong answer, and asked legally
    assert (found.evaluations, found.revisits, found.illegal) == (3, 1, 0)
    assert found.failures == {"verification": 1}


def test_time_is_a_budget_too(faulty: Callable[..., Kernel]) -> None:
    found = tune(faulty([0], list(range(1, 200))), swallows_the_end, seconds=2.0, repeats=1, finalists=0)
    assert found.ended == "seconds"
    assert 1 <= found.evaluations < 199
