"""A surrogate by a Gaussian process whose posterior is kept for every configuration of the space."""

from __future__ import annotations

import math

import numpy as np

from .shape import threads, unusual
from .table import Log, Table, targets

MOST = 500  # measurements that the process remembers: the work per step grows with their number times the size of the space
LENGTH = 0.6  # where the length scales start, in units of the range of a feature and of the root of their number


def features(table: Table) -> np.ndarray:
    """What the process sees of each configuration, (n, f), about within [0, 1]: numbers by the mean of rank and logarithm, and by
    how often 2 divides them where they are irregular; other values one-hot; and both of the threads in a block."""
    columns: list[np.ndarray] = []
    for j, values in enumerate(table.values):
        column, used = table.index[:, j], sorted(set(table.index[:, j].tolist()))
        if len(used) == 2:
            columns.append((column == used[1]).astype(float))
        elif all(isinstance(values[k], int | float) and not isinstance(values[k], bool) for k in used):
            numbers = np.array([float(values[k]) for k in used])
            place = np.searchsorted(used, column)
            size = np.log1p(numbers - numbers.min())
            columns.append(0.5 * (np.argsort(np.argsort(numbers)) / (len(used) - 1) + size / size.max())[place])
            if numbers.min() > 0 and numbers.max() >= 16 and (np.log2(numbers) % 1 != 0).any():
                columns.append((sum((numbers % 2**k == 0).astype(float) for k in range(1, 6)) / 5.0)[place])
        else:
            columns += [0.7 * (column == k) for k in used]
    product, block = threads(table)
    if len(block) > 1:
        size = np.log2(np.maximum(product, 1.0))
        columns.append((size - size.min()) / max(float(np.ptp(size)), 1e-9))
        columns.append(sum((product % 2**k == 0).astype(float) for k in range(1, 10)) / 9.0)
    return np.array(columns).T if columns else np.zeros((table.size, 1))


class GaussianProcess:
    """Matern-3/2 kernel with one length scale for each feature, plus a constant: the mean is not known. If `prior` is "usual",
    the mean has a slope in how unusual a configuration is, of weight 1, give or take 0.5: the data decide.

    With K = L L' over the m measurements and V = L^-1 K(measured, all), every row's mean is V' L^-1 y and its variance
    k(x, x) - sum V^2 (times the signal variance). A new measurement adds one row to L and V, from what V already holds: no system
    is solved. Hyperparameters are fitted again whenever the measurements have grown by `growth`.
    """

    def __init__(self, table: Table, growth: float, prior: str) -> None:
        self.x = features(table)
        self.slope = unusual(table) if prior == "usual" else np.zeros(table.size)
        self.variance = 2.0 + 0.25 * self.slope**2  # of each row before anything is known, without noise
        self.growth, self.due = growth, 0
        count = self.x.shape[1]
        self.start = np.append(np.full(count, math.log(LENGTH * math.sqrt(count))), math.log(1e-2))
        self.theta = self.start.copy()  # logarithms of the length scales, then of the noise
        self.rescale()
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
        y = (targets(log.costs) - self.slope[log.rows])[self.places]
        self.white = self.inverse[: len(y), : len(y)] @ y  # L^-1 y
        self.sigma = math.sqrt((self.white @ self.white + 1.0) / (len(y) + 2.0))

    def append(self, row: int, place: int) -> None:
        """One more measurement: the next row of L, of its inverse and of V."""
        m = len(self.places)
        if m == len(self.v):
            self.v = np.concatenate([self.v, np.zeros_like(self.v)])
            self.inverse = np.pad(self.inverse, (0, m))
        known = self.v[:m, row].copy()  # the new row of L, left of its diagonal
        pivot = math.sqrt(max(self.variance[row] + math.exp(self.theta[-1]) - float(known @ known), 1e-9))
        self.v[m] = (self.kernel([row])[0] - known @ self.v[:m]) / pivot
        self.inverse[m, :m] = -(known @ self.inverse[:m, :m]) / pivot
        self.inverse[m, m] = 1.0 / pivot
        self.explained += self.v[m] ** 2
        self.places.append(place)

    def rescale(self) -> None:
        """The features in units of the length scales, and their squared norms: what every covariance needs."""
        self.scaled = self.x * np.exp(-self.theta[:-1])
        self.square = (self.scaled**2).sum(axis=1)

    def kernel(self, rows: list[int]) -> np.ndarray:
        """Covariance of some rows with all, (r, n), in units of the signal variance."""
        square, scaled = self.square, self.scaled
        r = np.sqrt(3.0 * np.maximum(square[rows][:, None] + square - 2.0 * scaled[rows] @ scaled.T, 0.0))
        return 1.0 + (1.0 + r) * np.exp(-r) + 0.25 * np.outer(self.slope[rows], self.slope)

    def refit(self, log: Log) -> None:
        """New hyperparameters, and all built again; of very many measurements, for the best and the latest."""
        self.due = math.ceil(len(log.rows) * self.growth) + 1
        y, rows = targets(log.costs), np.array(log.rows)
        keep = np.arange(len(y))
        if len(keep) > MOST * 3 // 4:
            keep = np.union1d(np.argsort(y, kind="stable")[: MOST // 3], keep[-MOST // 3 :])
        if len(keep) >= 3:
            self.fit(rows[keep][-200:], y[keep][-200:])
            self.rescale()
        cross = self.kernel(rows[keep].tolist())
        gram = cross[:, rows[keep]] + (math.exp(self.theta[-1]) + 1e-6) * np.eye(len(keep))
        self.inverse = np.linalg.inv(np.linalg.cholesky(gram))
        self.v = self.inverse @ cross
        self.explained = (self.v**2).sum(axis=0)
        self.places, self.known = keep.tolist(), len(log.rows)

    def fit(self, rows: np.ndarray, targets_of: np.ndarray) -> None:
        """The hyperparameters of highest posterior near the last ones, by Rprop: the sign of the gradient decides."""
        theta, step = self.theta.copy(), np.full(len(self.theta), 0.2)
        x, y = self.x[rows], targets_of - self.slope[rows]
        fixed = 1.0 + 0.25 * np.outer(self.slope[rows], self.slope[rows])
        best, slope = self.misfit(theta, x, y, fixed)
        for _ in range(20 if len(y) < 30 else 10):
            theta = np.clip(theta - np.sign(slope) * step, -11.0, 6.0)
            value, after = self.misfit(theta, x, y, fixed)
            if value < best - 1e-9:
                best, self.theta = value, theta.copy()
            step = np.clip(step * np.where(after * slope > 0, 1.3, 0.5), 0.02, 0.8)
            slope = after

    def misfit(self, theta: np.ndarray, x: np.ndarray, y: np.ndarray, fixed: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative log posterior and its gradient, the signal variance integrated out, K with the covariances `fixed`:

        (m + 2)/2 log(y' K^-1 y + 1) + 1/2 log det K - log prior, the prior of the logarithms normal around where they start.
        """
        m, z, noise = len(y), x * np.exp(-theta[:-1]), math.exp(theta[-1])
        square = (z**2).sum(axis=1)
        r = np.sqrt(3.0 * np.maximum(square[:, None] + square - 2.0 * z @ z.T, 0.0))
        root = np.linalg.cholesky(fixed + (1.0 + r) * np.exp(-r) + (noise + 1e-6) * np.eye(m))
        half = np.linalg.inv(root)
        inverse = half.T @ half
        alpha = inverse @ y
        energy, off = float(y @ alpha) + 1.0, (theta - self.start) / np.append(np.full(x.shape[1], 0.6), 1.5)
        value = 0.5 * (m + 2) * math.log(energy) + float(np.log(np.diag(root)).sum()) + 0.5 * float(off @ off)
        weight = 0.5 * inverse - 0.5 * (m + 2) / energy * np.outer(alpha, alpha)  # d value / d K
        pull = 3.0 * weight * np.exp(-r)
        lengths = 2.0 * ((z**2).T @ pull.sum(axis=1) - ((pull @ z) * z).sum(axis=0))
        return value, np.append(lengths, noise * np.trace(weight)) + off / np.append(np.full(x.shape[1], 0.6), 1.5)

    def predict(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of the targets that measuring some rows would give."""
        v = self.v[: len(self.places)]
        few = len(rows) * 8 < self.v.shape[1]  # picking columns out of V costs more than multiplying by all of them
        mean = (self.white @ v[:, rows] if few else (self.white @ v)[rows]) + self.slope[rows]
        variance = np.maximum(self.variance[rows] - self.explained[rows], 1e-9) + math.exp(self.theta[-1])
        return mean, self.sigma * np.sqrt(variance)
