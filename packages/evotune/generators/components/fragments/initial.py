"""Initial designs: which configurations to measure before anything is known. Each returns `count` different rows."""

from __future__ import annotations

import numpy as np

from .table import Table


def initial_random(table: Table, count: int, rng: np.random.Generator) -> list[int]:
    """Rows drawn at random."""
    return rng.choice(table.size, size=min(count, table.size), replace=False).tolist()


def initial_spread(table: Table, count: int, rng: np.random.Generator) -> list[int]:
    """A maximin design: each next row is the one farthest from those chosen; the first is drawn at random."""
    rows = [int(rng.integers(table.size))]
    gap = np.abs(table.unit - table.unit[rows[0]]).sum(axis=1)
    while len(rows) < min(count, table.size):
        gap[rows] = -1.0
        rows.append(int(np.argmax(gap + 1e-6 * rng.random(table.size))))
        gap = np.minimum(gap, np.abs(table.unit - table.unit[rows[-1]]).sum(axis=1))
    return rows


def initial_lattice(table: Table, count: int, rng: np.random.Generator) -> list[int]:
    """A low-discrepancy design: the rows nearest to a randomly shifted Kronecker sequence of the generalised golden ratio."""
    width = table.unit.shape[1]
    ratio = 2.0
    for _ in range(40):  # the root of x**(d+1) = x + 1
        ratio = (1.0 + ratio) ** (1.0 / (width + 1))
    shift, steps = rng.random(width), ratio ** -np.arange(1.0, width + 1)
    allowed = np.ones(table.size, dtype=bool)
    rows: list[int] = []
    for k in range(min(count, table.size)):
        rows.append(table.nearest((shift + k * steps) % 1.0, allowed))
        allowed[rows[-1]] = False
    return rows


def initial_centre(table: Table, count: int, rng: np.random.Generator) -> list[int]:
    """The row nearest to the middle of every parameter, then its surroundings: first what changes one parameter, at random."""
    centre = table.nearest(np.full(table.unit.shape[1], 0.5), np.ones(table.size, dtype=bool))
    changed = np.count_nonzero(table.index != table.index[centre], axis=1)
    order = np.argsort(changed + rng.random(table.size) * (changed > 0), kind="stable")
    return order[:count].tolist()
