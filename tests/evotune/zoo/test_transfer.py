"""Recordings from elsewhere: joined by configuration and not by row, useful when devices agree, harmless when they do not."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_like import gpu_like

from evotune.zoo.gp_general import GPGeneral, Log, Process, View
from evotune.zoo.gp_transfer import GPTransfer, TransferView, joined, leader
from metabench import recording as recordings
from metabench.recording import Recording
from metabench.replay import Limits, replay
from metabench.searchspace import Searchspace


def best_rank(make: Any, on: Recording, evaluations: int, seed: int = 0) -> int:
    trace = replay(make(), on, Limits(evaluations=evaluations), seed)
    assert not trace.error
    return int(np.argsort(np.argsort(on.losses))[trace.rows].min())


def test_a_like_device_tells_the_best_at_once() -> None:
    on = gpu_like(seed=1)
    assert best_rank(lambda: GPTransfer([gpu_like(seed=2)]), on, 3) <= 10


def test_rows_in_another_order_are_joined_by_configuration() -> None:
    on, source = gpu_like(seed=1), gpu_like(seed=2)
    mapping = dict(zip(source.space.configurations, source.losses.tolist(), strict=True))
    backwards = dict(reversed(mapping.items()))
    space = Searchspace(on.space)
    np.testing.assert_array_equal(joined(mapping, space), joined(backwards, space))
    np.testing.assert_array_equal(joined(mapping, space), joined(source, space))


def test_a_cache_file_is_a_source(tmp_path: Path) -> None:
    source = gpu_like(seed=2, failing=0.2)
    path = recordings.save(source, tmp_path / "other.json")
    space = Searchspace(gpu_like().space)
    np.testing.assert_allclose(joined(path, space), source.losses)


def test_configurations_that_a_source_lacks_are_still_found() -> None:
    on, source = gpu_like(seed=1), gpu_like(seed=2)
    best = int(on.losses.argmin())
    part = {
        c: v
        for i, (c, v) in enumerate(zip(source.space.configurations, source.losses, strict=True))
        if i % 2 != best % 2
    }
    assert best != leader([joined(part, Searchspace(on.space))])
    assert best_rank(lambda: GPTransfer([part]), on, 60) <= 2


@pytest.mark.parametrize("disagreement", ["knows nothing", "is wrong about everything"])
def test_sources_that_disagree_cost_little(disagreement: str) -> None:
    """Values of other configurations; the best called the worst."""
    on = gpu_like(seed=1)
    order = np.random.default_rng(0).permutation(len(on.space))
    values = on.values[order] if disagreement == "knows nothing" else 1.0 / on.values
    source = dataclasses.replace(on, values=values)
    with_it = np.mean([best_rank(lambda: GPTransfer([source]), on, 40, s) for s in range(4)])
    without = np.mean([best_rank(GPGeneral, on, 40, s) for s in range(4)])
    assert with_it <= without + 5


def test_of_two_views_the_one_that_explains_the_measurements_is_taken() -> None:
    on = gpu_like(seed=1)
    order = np.random.default_rng(0).permutation(len(on.space))
    space, rng = Searchspace(on.space), np.random.default_rng(0)
    for source, expected in ((gpu_like(seed=2), 0), (dataclasses.replace(on, values=on.values[order]), 1)):
        views = [TransferView(space, [joined(source, space)], True, True), View(space)]
        process, log = Process(views, rng), Log(lambda c: on.losses[on.space.find(c)], on.space.configurations)
        for row in rng.permutation(len(on.space))[:40]:
            log.measure(int(row))
        process.learn(log)
        assert process.view is views[expected]


def test_a_source_of_another_kernel_is_refused() -> None:
    other = gpu_like(("a", "b", "c", "d"))
    trace = replay(GPTransfer([other]), gpu_like(), Limits(evaluations=5), 0)
    assert "lacks the parameter 'block_size_x'" in trace.error


def test_a_source_without_a_valid_value_is_no_source() -> None:
    on = gpu_like()
    nothing = dict.fromkeys(on.space.configurations, math.inf)
    runs = [replay(o, on, Limits(evaluations=20), 1).rows.tolist() for o in (GPTransfer([nothing]), GPGeneral())]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_best_elsewhere_is_measured_first(count: int) -> None:
    on = gpu_like(seed=9)
    sources = [gpu_like(seed=s) for s in range(count)]
    expected = leader([joined(s, Searchspace(on.space)) for s in sources])
    trace = replay(GPTransfer(sources), on, Limits(evaluations=10), 0)
    assert trace.rows[0] == expected
