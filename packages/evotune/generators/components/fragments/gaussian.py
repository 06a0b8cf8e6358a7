"""A surrogate by a Gaussian process whose posterior is kept for every configuration of the space."""

from __future__ import annotations

import math

import numpy as np

from .table import Log, Table, targets

MOST = 800  # measurements that the process remembers; the work per step grows with their number times the size of the space
LENGTH_PRIOR = 0.6  # where the length scales start, in units of the range of a parameter


def features(table: Table) -> np.ndarray:
    """What the process sees of each configuration, (n, f): numbers by the mean of their rank and logarithm, others one-hot."""
    columns: list[np.ndarray] = []
    for j, values in enumerate(table.values):
        used = sorted(set(table.index[:, j].tolist()))
        numbers = [values[k] for k in used]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers) and len(used) > 2:
            rank = np.argsort(np.argsort(numbers)) / (len(used) - 1)
            size = np.log1p(np.array(numbers, dtype=float) - min(numbers))
            level = 0.5 * (rank + size / size.max())
            columns.append(level[np.searchsorted(used, table.index[:, j])])
        elif len(used) == 2:
            columns.append((table.index[:, j] == used[1]).astype(float))
        else:
            columns += [0.7 * (table.index[:, j] == k) for k in used]
    return np.array(columns).T if columns else np.zeros((table.size, 1))


class GaussianProcess:
    """Matern-3/2 kernel with one length scale for each feature.

    With K = L L' over the m measurements and V = L^-1 K(measured, all), every row's mean is V' L^-1 y and its
    variance 1 - sum V^2 (times the signal variance). A new measurement adds one row to L and V, from what V already
    holds: no system is solved. Length scales and noise are the maximum of the posterior, by coordinate search,
    whenever the measurements have grown by `growth`.
    """

    def __init__(self, table: Table, growth: float) -> None:
        self.x = features(table)
        self.growth, self.due = growth, 0
        self.lengths = np.full(self.x.shape[1], LENGTH_PRIOR * math.sqrt(self.x.shape[1]))
        self.noise = 1e-3
        self.places: list[int] = []  # which of the log's measurements it remembers
        self.v, self.inverse = np.zeros((0, table.size)), np.zeros((0, 0))
        self.explained = np.zeros(table.size)
        self.known = 0

    def learn(self, log: Log) -> None:
        """Take in what was measured since the last call."""
        if len(log.rows) >= self.due or len(self.places) + len(log.rows) - self.known > MOST:
            self.refit(log)
        for place in range(self.known, len(log.rows)):
            self.append(log.rows[place], place)
        self.known = len(log.rows)
        y = targets(log.costs)[self.places]
        self.offset = y.mean()
        self.white = self.inverse[: len(y), : len(y)] @ (y - self.offset)  # L^-1 y
        self.sigma = math.sqrt((self.white @ self.white + 1.0) / (len(y) + 2.0))

    def append(self, row: int, place: int) -> None:
        """One more measurement: the next row of L, of its inverse and of V."""
        m = len(self.places)
        if m == len(self.v):
            self.v = np.concatenate([self.v, np.zeros_like(self.v)])
            self.inverse = np.pad(self.inverse, (0, m))
        known = self.v[:m, row].copy()  # the new row of L, left of its diagonal
        pivot = math.sqrt(max(1.0 + self.noise - float(known @ known), 1e-9))
        self.v[m] = (self.kernel([row])[0] - known @ self.v[:m]) / pivot
        self.inverse[m, :m] = -(known @ self.inverse[:m, :m]) / pivot
        self.inverse[m, m] = 1.0 / pivot
        self.explained += self.v[m] ** 2
        self.places.append(place)

    def kernel(self, rows: list[int]) -> np.ndarray:
        """Covariance of some rows with all, (r, n)."""
        scaled = self.x / self.lengths
        square = (scaled**2).sum(axis=1)
        return matern(np.sqrt(np.maximum(square[rows][:, None] + square - 2.0 * scaled[rows] @ scaled.T, 0.0)))

    def refit(self, log: Log) -> None:
        """New hyperparameters, and everything built again, for the best and the latest of the measurements if there are many."""
        self.due = math.ceil(len(log.rows) * self.growth) + 1
        y, rows = targets(log.costs), np.array(log.rows)
        keep = np.arange(len(y))
        if len(keep) > MOST * 3 // 4:
            best = np.argsort(y, kind="stable")[: MOST // 3]
            keep = np.unique(np.concatenate([best, keep[-MOST // 3 :]]))
        if len(keep) >= 3:
            self.fit(keep[:: math.ceil(len(keep) / 200)], rows, y)
        cross = self.kernel(rows[keep].tolist())
        gram = cross[:, rows[keep]] + self.noise * np.eye(len(keep))
        self.inverse = np.linalg.inv(np.linalg.cholesky(gram))
        self.v = self.inverse @ cross
        self.explained = (self.v**2).sum(axis=0)
        self.places, self.known = keep.tolist(), len(log.rows)

    def fit(self, some: np.ndarray, rows: np.ndarray, y: np.ndarray) -> None:
        """Coordinate search for log length scales and log noise, on `some` of the measurements."""
        x, y = self.x[rows[some]], y[some] - y[some].mean()
        squares = (x[:, None, :] - x[None, :, :]) ** 2  # (m, m, f)
        theta = np.append(np.log(self.lengths), math.log(self.noise))
        total = (squares * np.exp(-2.0 * theta[:-1])).sum(axis=2)
        value = self.misfit(total, theta, y)
        for step in (0.7, 0.35):
            for j in range(len(theta)):
                for move in (step, -step):
                    trial = theta.copy()
                    trial[j] += move
                    change = (
                        squares[:, :, j] * (math.exp(-2.0 * trial[j]) - math.exp(-2.0 * theta[j]))
                        if j < x.shape[1]
                        else 0.0
                    )
                    other = self.misfit(total + change, trial, y)
                    if other < value - 1e-6:
                        value, theta, total = other, trial, total + change
                        break
        self.lengths, self.noise = np.exp(theta[:-1]), math.exp(max(theta[-1], -11.0))

    def misfit(self, total: np.ndarray, theta: np.ndarray, y: np.ndarray) -> float:
        """Negative log posterior, the signal variance integrated out: m/2 log(y' K^-1 y) + 1/2 log det K - log prior."""
        m = len(y)
        gram = matern(np.sqrt(np.maximum(total, 0.0))) + math.exp(max(theta[-1], -11.0)) * np.eye(m)
        try:
            root = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            return math.inf
        white = np.linalg.solve(root, y)
        start = math.log(LENGTH_PRIOR * math.sqrt(len(theta) - 1))
        prior = 0.5 * float(((theta[:-1] - start) ** 2).sum()) + 0.5 * ((theta[-1] - math.log(1e-3)) / 1.5) ** 2
        return 0.5 * (m + 2) * math.log(float(white @ white) + 1.0) + float(np.log(np.diag(root)).sum()) + prior

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets of some rows."""
        mean = self.offset + self.white @ self.v[: len(self.places), rows]
        return mean, self.sigma * np.sqrt(np.maximum(1.0 - self.explained[rows], 1e-12))


def matern(r: np.ndarray) -> np.ndarray:
    """Matern kernel of smoothness 3/2 at scaled distance r."""
    return (1.0 + 1.7320508 * r) * np.exp(-1.7320508 * r)
