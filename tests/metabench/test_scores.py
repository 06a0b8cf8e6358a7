"""P must mean what it says: 0 for random search, 1 for the optimum at once, nothing from the scoring machine's clock."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from metabench import Recording, Space, UserError, bootstrap
from metabench.baseline import _prefixes, _steps, baseline
from metabench.pairs import seeds_of
from metabench.replay import Limits, replay
from metabench.score import performance, score


@pytest.fixture
def bumpy(recording_of) -> Recording:
    """240 configurations, heavy-tailed values, slow ones costing more, 5 % failing."""
    rng = np.random.default_rng(0)
    space = Space.from_dict({"a": list(range(12)), "b": list(range(20))})
    values = 1 + rng.lognormal(0, 1, len(space))
    costs = 0.5 + 0.2 * values
    values[rng.choice(len(space), 12, replace=False)] = np.nan
    return recording_of(space, values, costs)


def random_search(func, searchspace):
    for configuration in searchspace.get_random_sample(searchspace.size):
        func(configuration)


def oracle_for(recording: Recording):
    best = recording.space[int(np.nanargmin(recording.losses))]
    return lambda func, searchspace: func(best)


def test_random_search_scores_zero_and_the_oracle_one(bumpy: Recording) -> None:
    scores = score({"random": lambda: random_search, "oracle": lambda: oracle_for(bumpy)}, [bumpy], repeats=400)
    random = scores.mean("random")
    assert abs(random.mean) < 0.03 or random.low <= 0 <= random.high
    assert scores.mean("oracle").mean > 0.99


def test_maximising_is_minimising_the_negative(bumpy: Recording, recording_of) -> None:
    mirrored = recording_of(bumpy.space, -bumpy.values, bumpy.costs, maximize=True)
    p = [score({"random": lambda: random_search}, [r], repeats=20).p for r in (bumpy, mirrored)]
    np.testing.assert_allclose(p[0], p[1], atol=1e-12)


def test_a_run_without_evaluations_holds_the_median(bumpy: Recording) -> None:
    base = baseline(bumpy)
    trace = replay(lambda func, searchspace: None, bumpy, Limits(seconds=base.end))
    expected = np.mean((base.curve - base.median) / (base.curve - base.optimum))
    assert performance(trace, bumpy, base) == pytest.approx(expected)
    assert performance(trace, bumpy, base) < 0


def test_a_revisit_and_an_early_end_change_nothing_after_them(bumpy: Recording) -> None:
    base = baseline(bumpy)

    def once(func, searchspace):
        func((3, 3))

    def for_ever(func, searchspace):
        while True:
            func((3, 3))

    runs = [replay(o, bumpy, Limits(seconds=base.end)) for o in (once, for_ever)]
    assert performance(runs[0], bumpy, base) == performance(runs[1], bumpy, base)


def test_the_baseline_is_the_mean_of_random_permutations(recording_of) -> None:
    """On three configurations all six orders can be written down."""
    recording = recording_of(Space.from_dict({"x": [1, 2, 3]}), [3.0, 2.0, 1.0], costs=[1.0, 2.0, 4.0])
    times, levels, exact_until = _steps(recording.losses, recording.costs, 2.0, 60_000, 3)
    assert exact_until == pytest.approx(7.0)
    # at t = 2.5: first was 3 (t=1) in a third of the orders, 2 (t=2) in a third, nothing yet (the median, 2) in a third
    at = levels[np.searchsorted(times, 2.5, side="right") - 1]
    assert at == pytest.approx((3 + 2 + 2) / 3, abs=0.02)
    assert levels[-1] == pytest.approx(1.0)


def test_the_end_is_where_random_search_has_come_95_percent_of_the_way(bumpy: Recording) -> None:
    base = baseline(bumpy)
    target = base.optimum + 0.05 * (base.median - base.optimum)
    assert base.curve[-1] <= target < base.curve[-5]
    assert base.grid[0] == pytest.approx(bumpy.costs.mean())


def test_the_baseline_is_the_same_from_the_cache(bumpy: Recording) -> None:
    first, again = baseline(bumpy), baseline(bumpy)
    assert np.array_equal(first.curve, again.curve)
    assert np.array_equal(first.grid, again.grid)


def test_a_flat_space_is_refused(recording_of) -> None:
    flat = recording_of(Space.from_dict({"x": [1, 2, 3]}), [1.0, 1.0, 1.0])
    with pytest.raises(UserError, match="nothing to score"):
        baseline(flat)


def test_an_optimizer_that_raises_is_named(bumpy: Recording) -> None:
    def breaks(func, searchspace):
        raise ZeroDivisionError("here")

    seed = seeds_of("toy/bench", 7, repeats=2)[0]
    with pytest.raises(UserError, match=f"'fragile' failed on toy/bench with seed {seed}: ZeroDivisionError: here"):
        score({"fragile": lambda: breaks}, [bumpy], repeats=2, seed=7)


def test_luck_does_not_repeat_itself_on_the_next_device(bumpy: Recording) -> None:
    """Devices rank the configurations of a kernel alike, so runs with the same seed on each would be good or bad together."""
    twin = replace(bumpy, device="other")
    by_name = score({"random": lambda: random_search}, [bumpy, twin], repeats=200).p[0]
    assert abs(np.corrcoef(by_name)[0, 1]) < 0.2
    again = score({"random": lambda: random_search}, [twin], repeats=200).p[0]
    assert np.array_equal(again[0], by_name[1])  # whatever else is scored


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(60):
        estimate = bootstrap.over_repeats([rng.normal(0.3, 1.0, 40), rng.normal(0.1, 0.5, 40)], seed=trial)
        hits += estimate.low <= 0.2 <= estimate.high
    assert 50 <= hits <= 60


def test_pairing_removes_what_the_seed_does_to_both() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 1, 50)
    ours, theirs = luck + 0.2 + rng.normal(0, 0.1, 50), luck + rng.normal(0, 0.1, 50)
    difference = bootstrap.paired_difference([ours], [theirs])
    assert 0.1 < difference.low < difference.high < 0.3


def test_the_power_note_matches_a_simulation() -> None:
    rng = np.random.default_rng(0)
    n = bootstrap.repeats_to_see(0.5, spread=1.0)
    pairs = rng.normal(0.5, 1.0, (2000, n))
    found = np.abs(pairs.mean(axis=1)) / (pairs.std(axis=1, ddof=1) / math.sqrt(n)) > 1.96
    assert 0.75 < np.mean(found) < 0.88
    for nothing in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="a difference must be positive"):
            bootstrap.repeats_to_see(nothing, spread=1.0)


def test_prefixes_and_whole_permutations_give_the_same_baseline(bumpy: Recording) -> None:
    """Long prefixes shuffle the space, short ones draw from it and skip repeats: two ways to the same curve."""
    losses, costs, median = bumpy.losses, bumpy.costs, bumpy.median
    at = np.linspace(2, 40, 60)
    curves = []
    for length in (len(losses) // 2, len(losses)):
        times, levels, exact_until = _steps(losses, costs, median, 20_000, length)
        assert exact_until > at[-1]
        curves.append(levels[np.searchsorted(times, at, side="right") - 1])
    np.testing.assert_allclose(curves[0], curves[1], atol=0.03)


def test_a_prefix_is_a_random_order_without_repeats() -> None:
    rng = np.random.default_rng(0)
    seconds = np.zeros(4)
    for rows, first in _prefixes(rng, 4, 2, 4_000, 500):
        for drawn, new in zip(rows, first, strict=True):
            distinct = drawn[new]
            assert len(set(distinct)) == len(distinct) == len(set(drawn))
            if len(distinct) > 1:
                seconds[distinct[1]] += 1
    np.testing.assert_allclose(seconds / seconds.sum(), 0.25, atol=0.03)
