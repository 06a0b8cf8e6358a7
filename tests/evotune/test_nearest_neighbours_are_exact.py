"""HybridVNDX with quick nearest neighbours makes the same run as with Kernel Tuner's own loop."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from evotune.adapters import KernelTunerStrategy
from evotune.adapters.nearest import Nearest
from metabench.recording import Recording
from metabench.replay import Limits, replay
from metabench.testing import SPACES
from metabench.testing import recording as invented

pytest.importorskip("kernel_tuner")


def by_sorting(config: tuple[Any, ...], history: list[tuple[tuple[Any, ...], float]], k: int) -> float:
    """What Kernel Tuner's `knn_predict` says."""
    from kernel_tuner.strategies.gen_hybrid_vndx import HybridVNDX

    theirs = HybridVNDX.__new__(HybridVNDX)
    theirs.k = k
    return theirs.knn_predict(config, history)


@pytest.mark.parametrize("k", [1, 5, 9])
def test_the_prediction_is_equal_bit_for_bit_while_the_history_grows(k: int) -> None:
    """Ties everywhere; values of all kinds; 1, 1.0 and True are one value; the history outgrows its first room."""
    rng = random.Random(0)
    columns = [[1, 2, 4, 8], ["row", "column"], [True, False], [0.1, 0.2, 0.3], list(range(300)), [7]]
    drawn = [tuple(rng.choice(column) for column in columns) for _ in range(700)]
    history = [(drawn[0], 0.1)]
    nearest = Nearest(history)
    for config in drawn[1:]:
        asked = (float(config[0]), *config[1:])
        assert nearest.mean_cost(asked, k) == by_sorting(asked, history, k)
        history.append((config, rng.lognormvariate(0, 3)))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "space", ["holes", "strings, truth values, floats", "one- and two-valued parameters", "a few hundred"]
)
def test_the_run_is_the_same(space: str, seed: int) -> None:
    same_run(invented(SPACES[space], failing=0.2), 120, seed)


def test_the_run_is_the_same_on_a_measured_space(shared_dir) -> None:  # type: ignore[no-untyped-def]
    from metabench import catalog

    for recording in catalog.select(["convolution_milo/A100", "dedispersion_milo/MI250X"], shared_dir / "spaces"):
        same_run(recording, 250, seed=3)


def same_run(recording: Recording, evaluations: int, seed: int) -> None:
    from kernel_tuner.strategies import gen_hybrid_vndx

    quick, slow = KernelTunerStrategy("hybrid_vndx"), KernelTunerStrategy("hybrid_vndx")
    assert quick._tune is not gen_hybrid_vndx.tune
    slow._tune = gen_hybrid_vndx.tune
    one, two = (replay(o, recording, Limits(evaluations=evaluations), seed) for o in (quick, slow))
    assert len(one.rows) > min(20, len(recording.space) // 2) and not one.error
    np.testing.assert_array_equal(one.rows, two.rows)
    assert (one.calls, one.revisits) == (two.calls, two.revisits)
