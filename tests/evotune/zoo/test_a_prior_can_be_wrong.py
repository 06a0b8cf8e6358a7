"""Names mislead, and kernels differ from what is usual: the prior must help where it is right and fade where it is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_like import gpu_like

from evotune.zoo.gp_general import GPGeneral, View
from metabench.recording import Recording
from metabench.replay import Limits, replay
from metabench.searchspace import Searchspace
from metabench.space import Space


def mean_rank(make: Callable[[], Any], on: Recording, evaluations: int, seeds: int = 6) -> float:
    """Rank of the best that was found, in the mean over seeds."""
    order = np.argsort(np.argsort(on.losses))
    runs = [replay(make(), on, Limits(evaluations=evaluations), seed) for seed in range(seeds)]
    assert not any(run.error for run in runs)
    return float(np.mean([order[run.rows].min() for run in runs]))


def test_a_thread_block_is_recognised_whatever_it_is_called() -> None:
    named = View(Searchspace(gpu_like().space))
    nameless = View(Searchspace(gpu_like(("p0", "p1", "p2", "p3")).space))
    misnamed = View(Searchspace(gpu_like(("tile_size_x", "use_shmem", "block_size_x", "block_size_y")).space))
    assert named.block == nameless.block == misnamed.block == [0, 1]
    assert (named.tile, nameless.tile, misnamed.tile) == ([2], [], [])


def test_what_is_no_thread_block_is_not_taken_for_one_by_name() -> None:
    """A product of 16 or of 8,192 threads is no block, and there is no product of strings."""
    for values in ([1, 2, 4, 16], [1024, 4096, 8192], ["small", "large", "huge"]):
        view = View(Searchspace(Space.from_dict({"block_size": values, "n": [1, 2, 3]})))
        assert view.block == []


def test_the_prior_helps_where_it_is_right() -> None:
    on = gpu_like()
    assert mean_rank(GPGeneral, on, 5) < mean_rank(lambda: GPGeneral(names=False, structure=False), on, 5)


def test_a_wrong_prior_fades() -> None:
    """A kernel that wants everything that the prior advises against."""
    on = gpu_like()
    against = dataclasses.replace(on, values=30.0 / on.values)
    assert mean_rank(GPGeneral, against, 40) <= 10


def test_names_alone_that_mislead_fade_too() -> None:
    on = gpu_like(("tile_size_x", "p1", "block_size_x", "p3"))
    assert mean_rank(lambda: GPGeneral(structure=False), on, 40) <= 10


def test_other_names_give_the_same_run_where_no_name_is_known() -> None:
    one, other = gpu_like(("p0", "p1", "p2", "p3")), gpu_like(("alpha", "beta", "gamma", "delta"))
    runs = [replay(GPGeneral(), on, Limits(evaluations=30), 4).rows.tolist() for on in (one, other)]
    assert runs[0] == runs[1]
