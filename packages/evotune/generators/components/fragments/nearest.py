"""A surrogate by nearest neighbours: cheap, no fit, no assumption but that near configurations perform alike."""

from __future__ import annotations

import numpy as np

from .table import Log, Table, targets


class NearestNeighbors:
    """Predicts the distance-weighted mean of the `count` nearest measured configurations; the spread grows with distance."""

    def __init__(self, table: Table, count: int) -> None:
        self.unit = table.unit
        self.distance = np.full((table.size, count), np.inf)  # to the nearest measured rows, unordered
        self.which = np.zeros((table.size, count), dtype=int)  # the measurements that these are
        self.known = 0

    def learn(self, log: Log) -> None:
        """Take in what was measured since the last call."""
        everywhere = np.arange(len(self.unit))
        for place in range(self.known, len(log.rows)):
            distance = np.abs(self.unit - self.unit[log.rows[place]]).sum(axis=1)
            farthest = self.distance.argmax(axis=1)
            closer = np.flatnonzero(distance < self.distance[everywhere, farthest])
            self.distance[closer, farthest[closer]] = distance[closer]
            self.which[closer, farthest[closer]] = place
        self.known = len(log.rows)
        self.y = targets(log.costs)

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets of some rows."""
        distance = self.distance[rows]
        weight = 1.0 / (0.05 + distance)
        mean = (weight * self.y[self.which[rows]]).sum(axis=1) / weight.sum(axis=1)
        width = max(self.unit.shape[1], 1)
        return mean, (self.y.std() + 1e-9) * np.sqrt(distance.min(axis=1) / width)
