"""What is usual of a GPU kernel, read off the shape of its space and off names: a prior for designs and surrogates."""

from __future__ import annotations

import numpy as np

from .table import Table

THREADS = (256, 1024)  # limits on the threads of a block: OpenCL on AMD; CUDA and HIP
BLOCKS = ("block", "threads", "work_group", "local_size")  # in names of parameters that span a block
TILES = ("tile", "coarsen", "work_per")  # and of those that give a thread more work
FAVOURED = 0.03  # share of the space that is near enough to what is usual


def numbers(table: Table, j: int) -> np.ndarray:
    """Values of one parameter in all rows, (n,); ones where they are no numbers."""
    values = table.values[j]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return np.array(values if numeric else [1.0] * len(values), dtype=float)[table.index[:, j]]


def threads(table: Table) -> tuple[np.ndarray, list[int]]:
    """Threads of a block in all rows, (n,), and the parameters that span it; ones and none if no block is recognised.

    Two parameters whose product the restrictions cap at a device's limit span the block, whatever they are called; failing that,
    those that are called so, if their product looks like a block.
    """
    columns = [numbers(table, j) for j in range(len(table.values))]
    capped: set[int] = set()
    for a, x in enumerate(columns):
        for b, y in enumerate(columns[:a]):
            most = float((x * y).max())
            if most in THREADS and x.max() * y.max() > most:
                capped |= {a, b}
    block = sorted(capped) or [j for j, name in enumerate(table.names) if any(word in name.lower() for word in BLOCKS)]
    product = np.prod([columns[j] for j in block], axis=0) if block else np.ones(table.size)
    return (product, block) if 64 <= product.max() <= 1024 else (np.ones(table.size), [])


def unusual(table: Table) -> np.ndarray:
    """How far each row is from what is usual, (n,), 0 to 2: threads beyond 64 to 512, idle lanes of the last warp, block sizes
    that are no powers of two, much or hardly any work for a thread."""
    product, block = threads(table)
    total = np.zeros(table.size)
    if block:
        size = np.log2(np.maximum(product, 1.0))
        total += np.maximum(0.0, 6.0 - size) + np.maximum(0.0, size - 9.0) + 0.5 * (product % 32 != 0)
        total += np.ceil(product / 32.0) * 32.0 / product - 1.0
        total += 0.5 * np.mean([np.log2(np.maximum(numbers(table, j), 1.0)) % 1 != 0 for j in block], axis=0)
    named = [j for j, name in enumerate(table.names) if any(word in name.lower() for word in TILES) and j not in block]
    if named:
        work = np.sum([np.log2(np.maximum(numbers(table, j), 1.0)) for j in named], axis=0)
        total += 0.5 * np.maximum(0.0, work - 3.0) + 0.25 * np.maximum(0.0, 1.0 - work)
    return np.minimum(total, 4.0) / 2.0


def initial_usual(table: Table, count: int, rng: np.random.Generator) -> list[int]:
    """A maximin design within the configurations that are nearest to what is usual."""
    order = np.argsort(unusual(table) + 1e-6 * rng.random(table.size))
    pool = order[: max(count, int(FAVOURED * table.size))]
    chosen = [int(rng.integers(len(pool)))]
    gap = np.abs(table.unit[pool] - table.unit[pool[chosen[0]]]).sum(axis=1)
    while len(chosen) < min(count, len(pool)):
        gap[chosen] = -1.0
        chosen.append(int(np.argmax(gap + 1e-6 * rng.random(len(pool)))))
        gap = np.minimum(gap, np.abs(table.unit[pool] - table.unit[pool[chosen[-1]]]).sum(axis=1))
    return pool[chosen].tolist()
