"""Rank-one updates, pruned candidates, hand-made gradients: each is compared with the plain formula in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpu_like import gpu_like

from evotune.zoo import gp_general
from evotune.zoo.gp_general import Evidence, GPGeneral, Log, Process, Target, View, expected_improvement
from metabench.replay import Limits, replay
from metabench.searchspace import Searchspace
from metabench.testing import SPACES, recording


def process_after(count: int) -> tuple[Process, Log]:
    on = gpu_like()
    view = View(Searchspace(on.space))
    log = Log(lambda config: on.losses[on.space.find(config)], on.space.configurations)
    process = Process([view], np.random.default_rng(0))
    for row in np.random.default_rng(1).permutation(len(on.space))[:count]:
        log.measure(int(row))
        process.learn(log)
    return process, log


def test_rank_one_updates_equal_the_posterior_solved_anew() -> None:
    process, log = process_after(60)
    x, given = process.view.features().astype(float), process.view.prior.astype(float)
    rows = np.array(process.active)
    k = process._kernel(x, x, given, given)
    y = process.target(np.array([log.costs[log.rows.index(r)] for r in rows])) - given[rows] @ process.view.slope
    gram = k[np.ix_(rows, rows)] + (process.noise + 1e-6) * np.eye(len(rows))
    mean = given @ process.view.slope + k[:, rows] @ np.linalg.solve(gram, y)
    variance = np.diag(k) - np.einsum("ij,ji->i", k[:, rows], np.linalg.solve(gram, k[rows]))
    # float32 throughout V: 2e-3 is twice the largest error seen over 20 seeds
    np.testing.assert_allclose(process.mean, mean[process.rows], atol=2e-3)
    np.testing.assert_allclose(process.prior - process.explained, variance[process.rows], atol=2e-3)


def test_the_gradient_of_the_evidence_is_its_slope() -> None:
    rng = np.random.default_rng(0)
    x, y, given = rng.random((25, 4)), rng.standard_normal(25), 0.5 * rng.random((25, 1))
    start = np.append(np.full(4, 0.1), math.log(1e-2))
    evidence = Evidence(x, given, y, start)
    theta = start + 0.3 * rng.standard_normal(5)
    _, gradient = evidence(theta)
    for j, step in enumerate(1e-5 * np.eye(5)):
        numeric = (evidence(theta + step)[0] - evidence(theta - step)[0]) / 2e-5
        assert gradient[j] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_expected_improvement_is_its_integral() -> None:
    draws = np.random.default_rng(0).standard_normal(400_000)
    mean, spread = np.array([-1.0, 0.0, 1.0, 2.0]), np.array([0.5, 1.0, 2.0, 0.7])
    sampled = [np.maximum(0.3 - (m + s * draws), 0.0).mean() for m, s in zip(mean, spread, strict=True)]
    np.testing.assert_allclose(expected_improvement(0.3, mean, spread), sampled, atol=5e-3)


def test_a_target_keeps_the_order_and_compresses_the_bad() -> None:
    costs = np.array([1.0, 2.0, 3.0, 100.0, 1e6, math.inf])
    y = Target(costs)(costs)
    assert (np.diff(y[:5]) > 0).all()
    assert y[0] == -1.0
    assert y[4] < 5.0
    assert y[5] == pytest.approx(np.quantile(y[:5], 0.9))
    negated = -1.0 / costs[:5]  # the same objective, maximised
    np.testing.assert_allclose(Target(negated)(negated), y[:5])


@pytest.mark.parametrize(("name", "value"), [("CANDIDATES", 50), ("CELLS", 4000), ("ACTIVE", 20)])
def test_small_limits_still_find_the_best(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    """What large spaces and long runs go through: candidates that move, measurements that are forgotten."""
    monkeypatch.setattr(gp_general, name, value)
    on = gpu_like()
    trace = replay(GPGeneral(), on, Limits(evaluations=150), 0)
    assert (len(trace.rows), trace.error, trace.revisits) == (150, "", 0)
    assert np.argsort(np.argsort(on.losses))[trace.rows].min() <= 3


def test_candidates_run_out_only_when_the_space_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gp_general, "CANDIDATES", 30)
    on = recording(SPACES["holes"])
    trace = replay(GPGeneral(), on, Limits(), 0)
    assert sorted(trace.rows.tolist()) == list(range(len(on.space)))
