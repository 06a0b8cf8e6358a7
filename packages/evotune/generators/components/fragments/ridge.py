"""A surrogate by ridge regression on levels and pairs of levels: which values of which parameters, alone and together."""

from __future__ import annotations

import numpy as np

from .table import Log, Table, targets

REACH = 4.0  # how fast two levels of one parameter cease to be alike
RECENT = 300  # measurements that it remembers: the best half of these, and the latest


class PairwiseRidge:
    """Bayesian ridge regression with all pairs of (softened) one-hot levels, in kernel form.

    With a = the mean over parameters of how alike two levels are, a^2 is the inner product of all pairs of levels; so
    the system to solve has one row for each measurement, however many pairs there are.
    """

    def __init__(self, table: Table, strength: float) -> None:
        self.unit, self.strength = table.unit, strength

    def likeness(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Kernel between rows and others, (r, o)."""
        alike = np.ones((len(rows), len(others))) * (self.unit.shape[1] == 0)
        for j in range(self.unit.shape[1]):
            gap = np.abs(self.unit[rows, j][:, None] - self.unit[others, j][None, :])
            alike += np.exp(-REACH * gap) / self.unit.shape[1]
        return 0.3 * alike + 0.7 * alike**2

    def learn(self, log: Log) -> None:
        """Solve for what was measured, or for the best and the latest of it."""
        y = targets(log.costs)
        keep = np.arange(len(y))
        if len(y) > RECENT:
            keep = np.union1d(np.argsort(y, kind="stable")[: RECENT // 2], keep[-RECENT // 2 :])
        self.rows, y = np.array(log.rows)[keep], y[keep]
        gram = self.likeness(self.rows, self.rows) + self.strength * np.eye(len(y))
        self.offset, self.sigma = y.mean(), y.std() + 1e-9
        self.inverse = np.linalg.inv(gram)
        self.weights = self.inverse @ (y - self.offset)

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets of some rows."""
        cross = self.likeness(rows, self.rows)
        explained = np.einsum("rm,rm->r", cross @ self.inverse, cross)
        return self.offset + cross @ self.weights, self.sigma * np.sqrt(np.maximum(1.0 - explained, 0.0))
