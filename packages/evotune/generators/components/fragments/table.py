"""The search space as numbers, and the log of what was measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

FAILED = 1e300  # Kernel Tuner answers a failed configuration with the largest float, other callers with infinity
LARGEST = (
    30_000  # of a larger space, a random sample of this many configurations is searched: time and memory stay bounded
)


class Table:
    """The valid configurations as an index table: one row each, one column for each parameter that varies.

    Attributes:
        configs: the configurations, as the search space lists them.
        names, values: of the parameters that vary.
        index: (n, d) position of each value in its parameter's list of values.
        unit: (n, d) the same scaled to [0, 1].
    """

    def __init__(self, searchspace: Any, rng: np.random.Generator) -> None:
        self.configs = [tuple(config) for config in searchspace.list]
        if len(self.configs) > LARGEST:
            self.configs = [self.configs[i] for i in sorted(rng.choice(len(self.configs), LARGEST, replace=False))]
        self.size = len(self.configs)
        lists = [list(values) for values in searchspace.tune_params.values()]
        places = [{value: k for k, value in enumerate(values)} for values in lists]
        index = np.array([[place[v] for place, v in zip(places, config, strict=True)] for config in self.configs])
        varying = np.flatnonzero(index.min(axis=0) < index.max(axis=0))
        self.index = index[:, varying]
        self.values = [lists[j] for j in varying]
        self.names = [list(searchspace.tune_params)[j] for j in varying]
        self.unit = self.index / np.maximum(self.index.max(axis=0), 1)

    def neighbors(self, row: int, kind: str) -> np.ndarray:
        """Rows that differ from `row` in one parameter ("hamming"), in up to two ("two"), or by one step in each ("adjacent")."""
        steps = np.abs(self.index - self.index[row])
        if kind == "adjacent":
            near = steps.max(axis=1, initial=0) <= 1
        else:
            near = np.count_nonzero(steps, axis=1) <= (2 if kind == "two" else 1)
        near[row] = False
        return np.flatnonzero(near)

    def nearest(self, point: np.ndarray, allowed: np.ndarray) -> int:
        """The allowed row closest to a point of the unit cube; `allowed` is a mask (n,) with at least one row."""
        distance = np.abs(self.unit - point).sum(axis=1)
        return int(np.where(allowed, distance, np.inf).argmin())


class Log:
    """What was measured, in order. Each configuration is asked for once; a failure costs infinity."""

    def __init__(self, func: Any, table: Table) -> None:
        self.func = func
        self.configs = table.configs
        self.rows: list[int] = []
        self.costs: list[float] = []
        self.unseen = np.ones(table.size, dtype=bool)

    def measure(self, row: int) -> float:
        """Evaluate a configuration that was not seen yet and return its cost."""
        cost = float(self.func(self.configs[row]))
        cost = cost if abs(cost) < FAILED else math.inf
        self.rows.append(int(row))
        self.costs.append(cost)
        self.unseen[row] = False
        return cost

    def best(self) -> tuple[tuple, float]:
        """The best configuration and its cost."""
        place = int(np.argmin(self.costs))
        return self.configs[self.rows[place]], self.costs[place]

    def scale(self) -> float:
        """Spread of the better half of what was measured: what counts as a large difference of costs here."""
        costs = np.sort([cost for cost in self.costs if cost < math.inf])
        spread = float(np.median(costs) - costs[0]) if len(costs) else 0.0
        return spread if spread > 0 else 1.0


def targets(measured: list[float]) -> np.ndarray:
    """Costs as a surrogate should see them: logarithmic, compressed above the median, failures at the 90th percentile.

    The bad half of a space spans orders of magnitude that say nothing about where the best lies.
    """
    costs = np.asarray(measured, dtype=float)
    valid = costs[costs < math.inf]
    if not len(valid):
        return np.zeros(len(costs))
    if valid.min() > 0:
        valid = np.log(valid)
    elif valid.max() < 0:  # a maximised objective, negated
        valid = -np.log(-valid)
    low, middle = valid.min(), float(np.median(valid))
    valid = (valid - middle) / ((middle - low) or 1.0)
    valid = np.where(valid > 0, np.log1p(np.maximum(valid, 0.0)), valid)
    y = np.full(len(costs), np.quantile(valid, 0.9))
    y[costs < math.inf] = valid
    return y
