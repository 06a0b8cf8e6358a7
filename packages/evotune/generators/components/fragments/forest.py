"""A surrogate by a small forest of random trees that ask the same question at every node of a level (oblivious trees)."""

from __future__ import annotations

import math

import numpy as np

from .table import Log, Table, targets


class Forest:
    """Mean and spread of the predictions of `trees` random trees, for every row; two trees are grown anew at each step."""

    def __init__(self, table: Table, rng: np.random.Generator, trees: int, leaf: int) -> None:
        self.unit, self.rng, self.trees, self.leaf = table.unit, rng, trees, leaf
        self.predictions = np.zeros((trees, table.size))
        self.oldest = 0

    def learn(self, log: Log) -> None:
        """Grow the two oldest trees anew, or all in the beginning."""
        y, rows = targets(log.costs), np.array(log.rows)
        for _ in range(2 if self.oldest else self.trees):
            self.grow(rows, y, self.predictions[self.oldest % self.trees])
            self.oldest += 1

    def grow(self, rows: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        """Write one tree's prediction for all rows: the mean of the deepest node that holds at least `leaf` measurements."""
        seen = self.unit[rows]
        node, place = np.zeros(len(rows), dtype=int), np.zeros(len(out), dtype=int)
        out[:] = y.mean()
        cuts = np.flatnonzero(seen.min(axis=0, initial=1.0) < seen.max(axis=0, initial=0.0))
        for _ in range(math.ceil(math.log2(len(y))) if len(cuts) else 0):
            feature, at = self.question(seen, node, y, cuts)
            node, place = 2 * node + (seen[:, feature] > at), 2 * place + (self.unit[:, feature] > at)
            size = 1 + max(int(node.max()), int(place.max()))
            count, total = np.bincount(node, minlength=size), np.bincount(node, y, minlength=size)
            known = count[place] >= self.leaf
            out[known] = (total / np.maximum(count, 1))[place[known]]

    def question(self, seen: np.ndarray, node: np.ndarray, y: np.ndarray, cuts: np.ndarray) -> tuple[int, float]:
        """The best of three random cuts, by the variance that it explains in all nodes together."""
        best, chosen = -1.0, (0, 0.0)
        for feature in self.rng.choice(cuts, size=3):
            low, high = seen[:, feature].min(), seen[:, feature].max()
            at = self.rng.uniform(low, high)
            split = 2 * node + (seen[:, feature] > at)
            count, total = np.bincount(split), np.bincount(split, y)
            explained = float((total**2 / np.maximum(count, 1)).sum())
            if explained > best:
                best, chosen = explained, (int(feature), float(at))
        return chosen

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets of some rows."""
        return self.predictions[:, rows].mean(axis=0), self.predictions[:, rows].std(axis=0) + 1e-6
