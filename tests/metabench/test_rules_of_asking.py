"""An optimizer may do anything; it must not spend more than its budget, run for ever, or get an answer it did not pay for.

M1-M9 are the misbehaviours measured on Kernel Tuner's own simulation mode.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from metabench import Limits, Recording, Space, Stop, UserError, replay
from metabench.baseline import baseline
from metabench.replay import Session
from metabench.score import performance


def test_a_revisit_costs_nothing(twelve_points: Recording) -> None:
    session = Session(twelve_points, Limits(seconds=5))
    assert [session.ask((16, 1)) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert session.times == [1.0]
    assert session.revisits == 2


def test_m1_asking_for_the_same_point_for_ever_ends(twelve_points: Recording) -> None:
    def stubborn(func, searchspace):
        while func.budget_spent_fraction < 1:
            func((16, 1))

    trace = replay(stubborn, twelve_points, Limits(evaluations=5))
    assert (trace.ended, len(trace.rows), trace.calls) == ("calls", 1, 10 * 12 + 1000)


def test_m2_swallowing_exceptions_does_not_outlive_the_end(twelve_points: Recording) -> None:
    def swallows(func, searchspace):
        while True:
            with contextlib.suppress(Exception):
                func(searchspace.get_random_sample(1)[0])

    trace = replay(swallows, twelve_points, Limits(evaluations=5))
    assert (trace.ended, len(trace.rows)) == ("evaluations", 5)


@pytest.mark.parametrize("nonsense", [(1, 1), (math.nan, 1), (16,), (16, 1, 1), "16,1", None, ([], 1), (16, "1")])
def test_m3_m4_illegal_and_malformed_points_are_free_infinite_and_finite_in_number(
    twelve_points: Recording, nonsense: object
) -> None:
    answers = set()

    def lost(func, searchspace):
        while True:
            answers.add(func(nonsense))

    trace = replay(lost, twelve_points, Limits(evaluations=5))
    assert answers == {math.inf}
    assert (trace.ended, len(trace.rows), trace.illegal) == ("calls", 0, 10 * 12 + 1000)


def test_m5_m6_the_optimizer_is_handed_no_table_and_no_budget_to_raise(twelve_points: Recording) -> None:
    def nosy(func, searchspace):
        assert not {"tuning_options", "cache", "runner", "recording"} & set(dir(func))
        with pytest.raises(AttributeError):
            func.budget_spent_fraction = 0.0
        while True:
            func(searchspace.get_random_sample(1)[0])

    trace = replay(nosy, twelve_points, Limits(evaluations=5))
    assert (trace.error, len(trace.rows)) == ("", 5)


def test_m8_returning_at_once_is_a_trace_without_evaluations(twelve_points: Recording) -> None:
    trace = replay(lambda func, searchspace: None, twelve_points, Limits(evaluations=5))
    assert (trace.ended, len(trace.rows), trace.calls) == ("returned", 0, 0)


@pytest.mark.parametrize("same", [(64.0, 2.0), [64, 2], np.array([64, 2]), (np.int32(64), np.float32(2)), (64, 2)])
def test_m9_values_are_taken_by_equality(twelve_points: Recording, same: object) -> None:
    session = Session(twelve_points)
    assert session.ask(same) == 8.0
    assert session.rows == [7]


def test_the_end_is_final_even_for_an_optimizer_that_swallows_everything(twelve_points: Recording) -> None:
    session = Session(twelve_points, Limits(evaluations=2))
    session.ask((16, 1))
    session.ask((16, 2))
    for _ in range(3):
        with pytest.raises(Stop):
            session.ask((16, 1))
    assert session.calls == 2


def test_an_evaluation_that_starts_before_the_end_counts_at_the_end(twelve_points: Recording) -> None:
    session = Session(twelve_points, Limits(seconds=1.5))
    session.ask((16, 1))
    session.ask((16, 2))
    assert session.times == [1.0, 1.5]
    with pytest.raises(Stop):
        session.ask((16, 4))


def test_k4_a_space_smaller_than_the_budget_ends_when_it_is_exhausted(twelve_points: Recording) -> None:
    def tireless(func, searchspace):
        while True:
            func(searchspace.get_random_sample(1)[0])

    trace = replay(tireless, twelve_points, Limits(evaluations=50))
    assert (trace.ended, sorted(trace.rows)) == ("exhausted", list(range(12)))


def test_k6_a_failure_is_infinitely_bad_when_maximising(recording_of) -> None:
    space = Space.from_dict({"x": [1, 2, 3]})
    session = Session(recording_of(space, [5.0, math.nan, 7.0], maximize=True))
    assert [session.ask((x,)) for x in (1, 4, 2, 3)] == [-5.0, math.inf, math.inf, -7.0]


def test_a_failure_costs_what_it_cost(recording_of) -> None:
    session = Session(recording_of(Space.from_dict({"x": [1, 2]}), [5.0, math.nan], costs=[1.0, 30.0]))
    session.ask((2,))
    assert session.times == [30.0]


def test_the_same_seed_gives_the_same_trace_and_leaves_the_global_generators_alone(twelve_points: Recording) -> None:
    import random

    def drawing(func, searchspace):
        while True:
            func((random.choice([16, 32, 64, 128]), int(np.random.choice([1, 2, 4]))))  # noqa: NPY002

    before = random.getstate()
    traces = [replay(drawing, twelve_points, Limits(evaluations=6), seed=s).rows.tolist() for s in (3, 3, 4)]
    assert traces[0] == traces[1] != traces[2]
    assert random.getstate() == before


def test_what_an_optimizer_raises_is_kept_with_what_it_had(twelve_points: Recording) -> None:
    def breaks(func, searchspace):
        func((16, 1))
        raise RuntimeError("no idea")

    trace = replay(breaks, twelve_points)
    assert (trace.ended, trace.error, trace.rows.tolist()) == ("error", "RuntimeError: no idea", [0])


def test_a_run_may_end_when_a_loss_is_measured_and_its_score_is_the_same(recording_of) -> None:
    losses = np.random.default_rng(0).uniform(1.0, 2.0, 300).tolist()
    recording = recording_of(Space.from_dict({"x": list(range(20)), "y": list(range(15))}), losses)

    def tireless(func, searchspace):
        while True:
            with contextlib.suppress(Exception):
                func(searchspace.get_random_sample(1)[0])

    base = baseline(recording)
    for seed in range(5):
        whole = replay(tireless, recording, Limits(), seed)
        short = replay(tireless, recording, Limits(loss=base.optimum), seed)
        count = len(short.rows)
        assert short.ended == "found" and whole.ended == "exhausted" and count < len(whole.rows)
        assert recording.losses[short.rows].argmin() == count - 1, "not one evaluation after it"
        assert short.rows.tolist() == whole.rows[:count].tolist()
        assert performance(short, recording, base) == performance(whole, recording, base)


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"evaluations": -1}, {"calls": 0}, {"seconds": math.nan}])
def test_a_budget_of_nothing_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UserError, match="must be positive"):
        Limits(**limits)
