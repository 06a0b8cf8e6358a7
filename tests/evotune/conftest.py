"""Recordings and programs that evotune's tests share: small, synthetic, with interactions and failures."""

from __future__ import annotations

import numpy as np
import pytest

from metabench.recording import CORRECT, Recording
from metabench.space import Space


def synthetic(name: str = "synthetic/one", seed: int = 0, failing: float = 0.1, maximize: bool = False) -> Recording:
    """About 200 configurations of 5 parameters; the cost depends on two interactions and some noise."""
    space = Space.from_dict(
        {
            "x": [8, 16, 32, 64, 128],
            "y": [1, 2, 4, 8, 16],
            "unroll": [1, 2, 4],
            "layout": ["row", "column"],
            "vector": [False, True],
        },
        ["x * y <= 512", "unroll <= y"],
    )
    rng = np.random.default_rng(seed)
    table = space.table.astype(float)
    x, y, unroll, layout, vector = table.T
    values = (
        1.0
        + (x + y - 4.0) ** 2
        + 0.5 * np.abs(unroll - 1) * (1 + layout)
        + 0.8 * (vector != (x > 2))
        + 0.1 * rng.random(len(space))
    )
    status = np.full(len(space), CORRECT, dtype=object)
    broken = rng.random(len(space)) < failing
    values[broken], status[broken] = np.nan, "runtime"
    if maximize:
        values = 1000.0 / values
    kernel, device = name.split("/")
    return Recording(kernel, device, space, values, 0.5 + rng.random(len(space)), status, maximize=maximize)


@pytest.fixture(scope="session")
def recording() -> Recording:
    """One synthetic recording."""
    return synthetic()


@pytest.fixture(scope="session")
def two_recordings() -> list[Recording]:
    """The same space on two devices."""
    return [synthetic("synthetic/one", 0), synthetic("synthetic/two", 1)]
