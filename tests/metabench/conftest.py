"""A small recording whose every number is known, so that tests can compute the right answers by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from metabench import Recording, Space


@pytest.fixture
def twelve_points() -> Recording:
    """4 x 3 configurations; loss 1..12 in row order, cost 1 s each."""
    return make_recording(Space.from_dict({"block": [16, 32, 64, 128], "tile": [1, 2, 4]}))


@pytest.fixture
def recording_of() -> Callable[..., Recording]:
    """`make_recording`, for tests that need another space, other values or failures."""
    return make_recording


def make_recording(
    space: Space, values: np.ndarray | None = None, costs: np.ndarray | None = None, maximize: bool = False
) -> Recording:
    """A recording; values default to 1..n, costs to 1 s, NaN values are failures."""
    n = len(space)
    values = np.arange(1.0, n + 1) if values is None else np.asarray(values, dtype=float)
    costs = np.ones(n) if costs is None else np.asarray(costs, dtype=float)
    status = np.where(np.isnan(values), "runtime", "correct")
    return Recording("toy", "bench", space, values, costs, status, maximize=maximize)
