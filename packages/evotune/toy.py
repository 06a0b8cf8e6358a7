"""A space of 12 points with everything that optimizers stumble over: the cheapest test that a candidate has to pass."""

from __future__ import annotations

import functools

import numpy as np

from metabench.recording import CORRECT, Recording
from metabench.space import Space


@functools.cache
def toy_recording() -> Recording:
    """12 valid configurations of four parameters: one with a single value, one of strings, an isolated point, one that fails."""
    space = Space.from_dict(
        {"block": [16, 32, 64, 128], "unroll": [1, 2], "layout": ["row", "column"], "fixed": [7]},
        ["block != 128 or (unroll == 2 and layout == 'column')", "block != 64 or unroll == 2 or layout == 'row'"],
    )
    rows = np.arange(len(space))
    values = 1.0 + 0.1 * np.abs(rows - 5.0) + 0.01 * (rows % 3)
    status = np.full(len(space), CORRECT, dtype=object)
    values[2], status[2] = np.nan, "runtime"
    return Recording("toy", "paper", space, values, np.full(len(space), 0.5), status)
