"""An invented GPU kernel, for tests of what the zoo believes about GPU kernels."""

from __future__ import annotations

import numpy as np

from metabench.recording import Recording
from metabench.space import Space


def gpu_like(
    names: tuple[str, ...] = ("block_size_x", "block_size_y", "tile_size_x", "use_shmem"),
    seed: int = 0,
    failing: float = 0.0,
) -> Recording:
    """A kernel that likes 128 threads in whole warps, and little work a thread: 1,000 configurations, costs of a second."""
    x, y, tile, shared = names
    space = Space.from_dict(
        {x: list(range(16, 257, 16)), y: [1, 2, 4, 8, 16], tile: [1, 2, 3, 4, 6, 8], shared: [0, 1]},
        [f"{x} * {y} <= 1024"],
    )
    bx, by, work, use = (np.array(v, dtype=float)[space.table[:, j]] for j, v in enumerate(space.values))
    rng = np.random.default_rng(seed)
    threads = bx * by
    log = np.abs(np.log2(threads / 128.0)) + 0.7 * (threads % 32 > 0) + 0.4 * np.abs(work - 2) + 0.3 * use
    values = np.exp(log + 0.05 * rng.standard_normal(len(space)))
    failed = rng.random(len(space)) < failing
    failed[values.argmin()] = False
    status = np.where(failed, "runtime", "correct")
    return Recording("invented", "gpu", space, np.where(failed, np.nan, values), np.ones(len(space)), status)
