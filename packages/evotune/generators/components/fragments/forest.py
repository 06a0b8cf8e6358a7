"""A surrogate by a small forest of extremely randomised trees (Geurts et al. 2006)."""

from __future__ import annotations

import numpy as np

from .table import Log, Table, targets


class Forest:
    """Mean and spread of the predictions of `trees` random trees, for every row; two trees are grown anew at each step."""

    def __init__(self, table: Table, rng: np.random.Generator, trees: int, leaf: int) -> None:
        self.unit, self.rng, self.trees, self.leaf = table.unit, rng, trees, leaf
        self.predictions = np.zeros((trees, table.size))
        self.oldest = 0

    def learn(self, log: Log) -> None:
        """Grow the two oldest trees anew, or all in the beginning: growing is the expensive part."""
        y, rows, everywhere = targets(log.costs), np.array(log.rows), np.arange(len(self.unit))
        for _ in range(2 if self.oldest else self.trees):
            self.grow(rows, y, everywhere, self.predictions[self.oldest % self.trees])
            self.oldest += 1

    def grow(self, rows: np.ndarray, y: np.ndarray, region: np.ndarray, out: np.ndarray) -> None:
        """Write this node's prediction for the rows of its region, splitting it while its measurements differ."""
        split = self.split(rows, y) if len(y) > self.leaf and y.std() > 1e-12 else None
        if split is None:
            out[region] = y.mean()
            return
        feature, place = split
        left, region_left = self.unit[rows, feature] <= place, self.unit[region, feature] <= place
        self.grow(rows[left], y[left], region[region_left], out)
        self.grow(rows[~left], y[~left], region[~region_left], out)

    def split(self, rows: np.ndarray, y: np.ndarray) -> tuple[int, float] | None:
        """The best of a few random cuts, by the variance that it explains."""
        best, chosen = 0.0, None
        low, high = self.unit[rows].min(axis=0), self.unit[rows].max(axis=0)
        for feature in self.rng.permutation(np.flatnonzero(high > low))[:5]:
            place = self.rng.uniform(low[feature], high[feature])
            left = self.unit[rows, feature] <= place
            gain = left.mean() * (~left).mean() * (y[left].mean() - y[~left].mean()) ** 2
            if gain > best:
                best, chosen = gain, (int(feature), float(place))
        return chosen

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets of some rows."""
        return self.predictions[:, rows].mean(axis=0), self.predictions[:, rows].std(axis=0) + 1e-6
