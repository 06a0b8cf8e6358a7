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
        self.columns = np.zeros((16, table.size))  # kernel of every measurement with all rows; room for more
        self.known = 0

    def likeness(self, row: int) -> np.ndarray:
        """Kernel between one row and all, (n,)."""
        alike = np.exp(-REACH * np.abs(self.unit - self.unit[row])).mean(axis=1) if self.unit.shape[1] else 1.0
        return 0.3 * alike + 0.7 * alike**2 + np.zeros(len(self.unit))

    def learn(self, log: Log) -> None:
        """Solve for what was measured, or for the best and the latest of it."""
        for row in log.rows[self.known :]:
            if self.known == len(self.columns):
                self.columns = np.concatenate([self.columns, np.zeros_like(self.columns)])
            self.columns[self.known] = self.likeness(row)
            self.known += 1
        y = targets(log.costs)
        keep = np.arange(len(y))
        self.cross = self.columns[: len(y)]  # (m, n)
        if len(y) > RECENT:
            keep = np.union1d(np.argsort(y, kind="stable")[: RECENT // 2], keep[-RECENT // 2 :])
            self.cross = self.columns[keep]
        y = y[keep]
        self.offset, self.sigma = y.mean(), y.std() + 1e-9
        self.inverse = np.linalg.inv(self.cross[:, np.array(log.rows)[keep]] + self.strength * np.eye(len(y)))
        self.weights = self.inverse @ (y - self.offset)

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets of some rows."""
        cross = self.cross[:, rows]
        explained = ((self.inverse @ cross) * cross).sum(axis=0)
        return self.offset + self.weights @ cross, self.sigma * np.sqrt(np.maximum(1.0 - explained, 0.0))
