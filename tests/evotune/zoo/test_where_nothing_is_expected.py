"""The model can be sure of itself and wrong: then the neighbours of the best measurements are looked at."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpu_like import gpu_like

from evotune.zoo import gp_general
from evotune.zoo.gp_general import GPGeneral, Log, Process, View
from metabench.replay import Limits, replay
from metabench.searchspace import Searchspace
from metabench.testing import SPACES, recording


def test_neighbours_differ_in_one_parameter_and_a_thread_block_is_one() -> None:
    on = gpu_like()
    view = View(Searchspace(on.space))
    assert view.block == [0, 1]
    rows = np.random.default_rng(0).permutation(len(on.space))[:400]
    row = int(rows[7])
    for r, near in zip(rows, view.neighbours(rows, row), strict=True):
        here, there = on.space[int(r)], on.space[row]
        assert near == ((here[:2] != there[:2]) + (here[2] != there[2]) + (here[3] != there[3]) == 1)


def test_without_a_thread_block_every_parameter_counts() -> None:
    on = gpu_like(names=("a", "b", "c", "d"))
    view = View(Searchspace(on.space), structure=False)
    assert view.block == []
    differ = (on.space.table != on.space.table[3]).sum(axis=1)
    np.testing.assert_array_equal(view.neighbours(np.arange(len(on.space)), 3), differ == 1)


def test_a_model_that_expects_nothing_looks_beside_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    on = gpu_like()
    view = View(Searchspace(on.space))
    log = Log(lambda config: on.losses[on.space.find(config)], on.space.configurations)
    for row in np.random.default_rng(1).permutation(len(on.space))[:40]:
        log.measure(int(row))
    process = Process([view], np.random.default_rng(0))
    process.learn(log)
    best = [log.rows[i] for i in np.argsort(log.costs)[: gp_general.NEIGHBOURED]]
    beside = np.any([view.neighbours(process.rows, row) for row in best], axis=0) & log.unseen
    for flat in (0.0, np.inf):  # never, always
        monkeypatch.setattr(gp_general, "FLAT", flat)
        gain = gp_general.expected_improvement(
            process.best,
            process.mean,
            np.sqrt(process.signal * (np.maximum(process.prior - process.explained, 1e-9) + process.noise)),
        )
        allowed = beside if flat else log.unseen
        assert process.next_row(log) == np.where(allowed, gain, -1.0).argmax()


@pytest.mark.parametrize("level", [False, True])
def test_when_the_neighbours_are_used_up_the_rest_comes(monkeypatch: pytest.MonkeyPatch, level: bool) -> None:
    """The whole space, each once, also for one who always looks beside the best first; the same where all costs are equal."""
    monkeypatch.setattr(gp_general, "FLAT", np.inf)
    on = recording(SPACES["holes"])
    if level:
        on = dataclasses.replace(on, values=np.where(np.isfinite(on.values), 2.0, np.nan))
    trace = replay(GPGeneral(), on, Limits(), 0)
    assert trace.error == ""
    assert sorted(trace.rows.tolist()) == list(range(len(on.space)))


def test_an_optimum_that_stands_out_beside_good_ones_is_found_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """One configuration two parameters away from the best of a smooth landscape, better than the model can believe."""
    on = gpu_like()
    smooth = np.exp(0.1 * np.log(on.losses))  # half of the space within a few per cent
    best = int(smooth.argmin())
    differ = (on.space.table[:, :2] != on.space.table[best, :2]).any(axis=1) & (
        on.space.table[:, 2:] == on.space.table[best, 2:]
    ).all(axis=1)
    hidden = np.flatnonzero(differ)[np.argsort(smooth[differ])[differ.sum() // 2]]
    smooth[hidden] = 0.99 * smooth.min()
    spiked = dataclasses.replace(on, values=smooth)
    needed = []
    for flat in (gp_general.FLAT, 0.0):
        monkeypatch.setattr(gp_general, "FLAT", flat)
        rows = replay(GPGeneral(), spiked, Limits(evaluations=150), 0).rows
        needed.append(int(np.argmax(rows == hidden)) if hidden in rows else 150)
    assert needed[0] < needed[1]


def test_rounding_that_makes_the_kernel_indefinite_costs_noise_and_no_run() -> None:
    """Many measurements side by side: float32 lost the least eigenvalues, and one run of 25 ended with a LinAlgError."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    gram = (basis * np.append(np.linspace(1.0, 500.0, 39), -2.4e-4)) @ basis.T
    root, noise = gp_general.factor(gram, 1e-4)
    assert noise == pytest.approx(1e-3)
    np.testing.assert_allclose(root @ root.T, gram + (noise + 1e-6) * np.eye(40), atol=1e-9)
    assert gp_general.factor(gram + np.eye(40), 1e-4)[1] == 1e-4
