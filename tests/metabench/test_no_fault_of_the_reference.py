"""What the reference implementation of the score gets wrong, `direct` must not: one test for each fault that was found in it.

B1-B12 are those of the published estimator (docs/scoring.md lists them); K and M are faults that people met in tuners.
"""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from metabench import Recording, Space, UserError, load, replay, score
from metabench.baseline import _steps, baseline
from metabench.replay import Limits
from metabench.score import best_so_far, performance


@pytest.fixture
def slow_is_bad(recording_of) -> Recording:
    """300 configurations whose bad ones cost up to ten times more, and an eighth of which fails, expensively."""
    rng = np.random.default_rng(3)
    space = Space.from_dict({"a": list(range(15)), "b": list(range(20))})
    values = 1 + rng.lognormal(0, 1.2, len(space))
    costs = 0.2 + 0.5 * values
    failed = rng.random(len(space)) < 0.125
    costs[failed] = 8.0
    return recording_of(space, np.where(failed, np.nan, values), costs)


def shuffle(func, searchspace):
    for configuration in searchspace.get_random_sample(searchspace.size):
        func(configuration)


def p_of(optimizer, recording: Recording, seed: int = 0) -> float:
    base = baseline(recording)
    return performance(replay(optimizer, recording, Limits(seconds=base.end), seed), recording, base)


def test_b1_the_score_of_fixed_runs_is_not_random(slow_is_bad: Recording) -> None:
    first, again = (score({"shuffle": lambda: shuffle}, [slow_is_bad], 5, 7) for _ in range(2))
    assert np.array_equal(first.p, again.p)
    assert first.mean("shuffle") == again.mean("shuffle")


def test_b2_revisits_cost_nothing(slow_is_bad: Recording) -> None:
    def asks_all_again(func, searchspace):
        sample = searchspace.get_random_sample(searchspace.size)
        for i, configuration in enumerate(sample):
            func(configuration)
            for known in sample[max(0, i - 5) : i + 1]:
                func(known)

    assert p_of(asks_all_again, slow_is_bad, 4) == p_of(shuffle, slow_is_bad, 4)


def test_b3_the_clock_of_the_scoring_machine_does_not_enter(slow_is_bad: Recording) -> None:
    def sleepy(func, searchspace):
        time.sleep(0.05)
        shuffle(func, searchspace)

    assert p_of(sleepy, slow_is_bad, 1) == p_of(shuffle, slow_is_bad, 1)


def test_b4_the_baseline_is_not_a_rank_too_good(recording_of) -> None:
    """Of five configurations at equal cost, after m draws without replacement the expected best is known exactly."""
    recording = recording_of(Space.from_dict({"x": [1, 2, 3, 4, 5]}), [5.0, 4.0, 3.0, 2.0, 1.0])
    times, levels, _ = _steps(recording.losses, recording.costs, 3.0, 40_000, 5)
    for m in range(1, 6):
        exact = np.mean([min(drawn) for drawn in itertools.combinations([1, 2, 3, 4, 5], m)])
        assert levels[np.searchsorted(times, m, side="right") - 1] == pytest.approx(exact, abs=0.03)


def test_b5_b6_random_search_is_zero_where_bad_and_failing_configurations_cost_more(slow_is_bad: Recording) -> None:
    random = score({"shuffle": lambda: shuffle}, [slow_is_bad], 600).mean("shuffle")
    assert random.low <= 0.01
    assert random.high >= -0.01
    assert abs(random.mean) < 0.05


def test_b7_a_space_that_is_solved_at_once_has_a_time_axis_of_two_evaluations(recording_of) -> None:
    values = np.ones(60)
    values[:25] = 2.0
    values[0] = 3.0
    space = Space.from_dict({"x": list(range(60))})
    with pytest.raises(UserError, match="at least half of the valid configurations are optimal"):
        baseline(recording_of(space, values))
    values[25:28] = 1.5
    values[28:] = np.linspace(1.0, 1.49, 32)
    base = baseline(recording_of(space, values))
    assert base.evaluations >= 2


def test_b8_the_baseline_is_what_random_search_does_at_every_time(slow_is_bad: Recording) -> None:
    """No interpolation between rounded evaluations: the curve of fresh runs lies on it, and not a little to its side."""
    base = baseline(slow_is_bad)
    runs = [replay(shuffle, slow_is_bad, Limits(seconds=base.end), seed) for seed in range(600)]
    off = np.array([best_so_far(trace, slow_is_bad, base) - base.curve for trace in runs])
    tenths = off.reshape(len(runs), 10, -1).mean(axis=2)
    assert (np.abs(tenths.mean(axis=0)) <= 4 * tenths.std(axis=0) / math.sqrt(len(runs))).all()


def test_b9_a_run_with_many_requests_weighs_no_more_than_another(slow_is_bad: Recording) -> None:
    class Sometimes:
        """Every other run asks each configuration twenty times."""

        runs = itertools.count()

        def __call__(self, func, searchspace):
            times = 20 if next(self.runs) % 2 else 1
            for configuration in searchspace.get_random_sample(searchspace.size):
                for _ in range(times):
                    func(configuration)

    busy = score({"sometimes": Sometimes}, [slow_is_bad], 8)
    calm = score({"shuffle": lambda: shuffle}, [slow_is_bad], 8)
    np.testing.assert_array_equal(busy.p, calm.p)


def test_b10_the_interval_is_over_repeats_and_shrinks_with_them(slow_is_bad: Recording) -> None:
    few, many = (score({"shuffle": lambda: shuffle}, [slow_is_bad], n) for n in (10, 160))
    widths = [s.mean("shuffle").high - s.mean("shuffle").low for s in (few, many)]
    assert widths[1] < 0.5 * widths[0]
    runs = many.p[0, 0]
    estimate = many.mean("shuffle")
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * runs.std() / math.sqrt(len(runs)), rel=0.2)


def test_b11_failures_at_the_start_are_scored(slow_is_bad: Recording) -> None:
    failing = [slow_is_bad.space[i] for i in np.flatnonzero(np.isnan(slow_is_bad.values))[:3]]

    def fails_first(func, searchspace):
        for configuration in failing:
            func(configuration)
        shuffle(func, searchspace)

    base = baseline(slow_is_bad)
    trace = replay(fails_first, slow_is_bad, Limits(seconds=base.end))
    held = base.grid < trace.times[2]
    assert held.any()
    assert (best_so_far(trace, slow_is_bad, base)[held] == base.median).all()
    assert p_of(fails_first, slow_is_bad) < p_of(shuffle, slow_is_bad)


def test_b12_a_run_that_ends_early_holds_its_last_value(slow_is_bad: Recording) -> None:
    def stops(func, searchspace):
        for configuration in searchspace.get_random_sample(6):
            func(configuration)

    base = baseline(slow_is_bad)
    trace = replay(stops, slow_is_bad, Limits(seconds=base.end))
    curve = best_so_far(trace, slow_is_bad, base)
    assert (curve[base.grid >= trace.times[-1]] == np.nanmin(slow_is_bad.losses[trace.rows])).all()


# -- misbehaviour, as the scorer sees it ------------------------------------------------------------------------------


def asks_the_same(func, searchspace):
    while func.budget_spent_fraction < 1:
        func(searchspace.list[5])


def swallows(func, searchspace):
    while True:
        try:
            func(searchspace.list[5])
        except Exception:
            continue


def illegal(func, searchspace):
    while True:
        func((99, 99))


def not_a_number(func, searchspace):
    while True:
        func((math.nan, math.nan))


def returns(func, searchspace):
    return None


def floats(func, searchspace):
    func([float(v) for v in searchspace.list[5]])


def looks_for_the_table(func, searchspace):
    table = func.tuning_options.cache
    func(min(table, key=table.get))


NOTHING, FIVE = "nothing", "row five"


@pytest.mark.parametrize(
    ("optimizer", "worth"),
    [
        (asks_the_same, FIVE), (swallows, FIVE), (illegal, NOTHING), (not_a_number, NOTHING), (returns, NOTHING), (floats, FIVE),
    ],
)  # fmt: skip
def test_m1_to_m4_m7_to_m9_misbehaviour_is_worth_what_it_found(slow_is_bad: Recording, optimizer, worth: str) -> None:
    found = score({"it": lambda: optimizer}, [slow_is_bad], 2)
    base = baseline(slow_is_bad)
    rows = [5] if worth == FIVE else []
    times = [slow_is_bad.costs[5]] if worth == FIVE else []
    honest = replay(returns, slow_is_bad)
    honest.rows, honest.times = np.array(rows, dtype=np.int64), np.array(times)
    assert found.p[0, 0].tolist() == [performance(honest, slow_is_bad, base)] * 2
    assert all(len(t.rows) == len(rows) for t in found.traces["it", "toy/bench"])


def test_m5_m6_the_table_is_out_of_reach(slow_is_bad: Recording) -> None:
    with pytest.raises(UserError, match=r"'cheat' failed on toy/bench .*AttributeError"):
        score({"cheat": lambda: looks_for_the_table}, [slow_is_bad], 1)


def test_m10_an_optimizer_in_the_place_of_its_factory_is_told(slow_is_bad: Recording) -> None:
    with pytest.raises(UserError, match="is no factory: give something that is called without arguments"):
        score({"itself": shuffle}, [slow_is_bad], 1)  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["genetic_algorithm", "diff_evo", "pyatf_de", "gp_general"])
def test_k1_k2_few_evaluations_and_parameters_with_one_and_two_values(recording_of, name: str) -> None:
    """A budget smaller than any population, on a space where a parameter cannot be varied and another only switched."""
    from metabench import registry

    if name not in registry.available():
        pytest.skip(f"{name} is not installed here")
    space = Space.from_dict({"one": [7], "two": [0, 1], "c": list(range(9))})
    c = space.table[:, 2].astype(float)
    quick = recording_of(space, np.where(c < 4, 1.0 + 0.001 * c, c) + 0.01 * space.table[:, 1])
    assert baseline(quick).evaluations < 6
    scores = score({name: name}, [quick], 3)
    assert np.isfinite(scores.p).all()
    assert all(1 <= len(t.rows) <= baseline(quick).evaluations + 1 for t in scores.traces[name, quick.name])


def test_k3_the_same_configuration_twice_is_one_evaluation(slow_is_bad: Recording) -> None:
    def twice(func, searchspace):
        for configuration in searchspace.get_random_sample(40):
            func(configuration)
            func(list(configuration))

    (trace,) = score({"twice": lambda: twice}, [slow_is_bad], 1).traces["twice", "toy/bench"]
    assert len(set(trace.rows.tolist())) == len(trace.rows)


def test_k11_no_more_than_the_budget(slow_is_bad: Recording) -> None:
    def population(func, searchspace):
        while True:
            func.eval_all(searchspace.get_random_sample(20))

    assert len(replay(population, slow_is_bad, Limits(evaluations=7)).rows) == 7


def test_k12_what_is_kept_is_found_only_for_the_same_question(slow_is_bad: Recording, recording_of, tmp_path) -> None:
    """A cache whose key lacks something answers for another: baselines and compact recordings."""
    base = baseline(slow_is_bad)
    dearer = recording_of(slow_is_bad.space, slow_is_bad.values, slow_is_bad.costs * 2)
    assert baseline(dearer).end == pytest.approx(2 * base.end)
    path = tmp_path / "a.json"
    path.write_text(
        '{"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 1.0, "GFLOP/s": 7.0, "times": [1.0]}, '
        '"2": {"x": 2, "time": 2.0, "GFLOP/s": 9.0, "times": [2.0]}}}'
    )
    kept = [load(path), load(path, objective="GFLOP/s"), load(path, objective="GFLOP/s", maximize=False)]
    assert [(r.objective, r.maximize, r.optimum) for r in kept] == [
        ("time", False, 1.0), ("GFLOP/s", True, 9.0), ("GFLOP/s", False, 7.0)
    ]  # fmt: skip
    with pytest.raises(UserError, match="lacks 1 of 3"):
        load(path, space=Space.from_dict({"x": [1, 2, 3]}))
