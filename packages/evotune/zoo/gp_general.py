"""A Gaussian process over the whole space, with a prior read off the shape of the space: the default.

Tuning spaces are small enough to enumerate, so the posterior of every valid configuration is kept up to date and the one of
largest expected improvement is measured next. What makes it work, each with what it was worth where it was chosen
(docs/lab-notes.md): length scales for each feature, fitted as the measurements grow; Matern-3/2; a target that is logarithmic
below the median and compressed above it; expected improvement of the *measured* value, its roughness included; where that is
nowhere to be had, the neighbours of the best; and a prior.

The prior is what a person who tunes GPU kernels knows about thread blocks: 64 to 512 threads, whole warps, powers of two;
little work for each thread. Which parameters span the block is read first off the values (a product that the restrictions
cap at the device's limit), then off the names. It sets where the first measurements are taken and is the mean function's
slope, whose weight the data decide.

When to use it: whenever nothing is known about the kernel. With recordings of the same kernel from elsewhere, `gp_transfer`.
On spaces beyond CANDIDATES configurations it works on candidates that move: the best by the last posterior, the
neighbours of the best measurements, and a fresh random part.

Needs NumPy. `kernel_tuner.tune_kernel(..., strategy=OptAlgWrapper(GPGeneral()))`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    from kernel_tuner.strategies.wrapper import OptAlg
except ImportError:  # the program also runs where Kernel Tuner is not installed

    class OptAlg:  # type: ignore[no-redef]
        def __init__(self) -> None:
            self.costfunc_kwargs = {"scaling": False, "snap": False}


PROVENANCE = {
    "kind": "designed",
    "by": "the metaopt-toolkit authors",
    "spaces": [
        "convolution_milo/A100", "convolution_milo/A4000", "convolution_milo/MI250X",
        "dedispersion_milo/A100", "dedispersion_milo/A4000", "dedispersion_milo/MI250X",
    ],
}  # fmt: skip
SCORES = {  # P under `direct`, its 95 % interval, runs a space: benchmarks/zoo/measure.py
    "train": (0.941, 0.931, 0.950, 25),
    "test": (0.949, 0.935, 0.960, 25),
    "all 12": (0.945, 0.936, 0.952, 25),
    "all 12 without conv. W6600": (0.946, 0.937, 0.953, 25),
    "clblast": (0.953, 0.943, 0.962, 25),
}

FAILED = 1e300  # Kernel Tuner answers a failure with the largest float, others with infinity
ACTIVE = 500  # measurements that the process holds: work per step grows with them times the candidates
CELLS = 6_000_000  # entries of V, measurements x candidates: 24 MB, about 2 ms a pass
CANDIDATES = 12_000  # most configurations that are looked at between two refits; larger spaces are seen in parts
FITTED = 200  # measurements that hyperparameters are fitted on
GROWTH = 1.15  # they are fitted again when the measurements have grown by this
LENGTH = 0.6  # log-normal prior of length scales, in units of a feature's range and of sqrt(features)
LENGTH_SPREAD = 0.6
NOISE = 1e-2  # the same for the share of the variance that neighbours do not share: 0.001 was 0.01 worse
NOISE_SPREAD = 1.5
LEAST_NOISE = math.log(1e-4)  # what float32 can tell apart in the updates
SLOPE, SLOPE_SPREAD = 1.0, 0.5  # normal prior of the weight of the penalty; 0.5 and 0.25 were 0.01 and 0.02 worse
FLAT = 1e-4  # expected improvement, in distances from the best to the median, below which the model has nothing to say
NEIGHBOURED = 3  # best measurements whose neighbours are then measured; 1 was 0.01 to 0.04 worse where it matters
FAVOURED = 0.03  # share of the space within which the first measurements lie
SQRT3 = math.sqrt(3.0)

THREADS = (256, 1024)  # limits on threads in a block: OpenCL on AMD; CUDA and HIP
ROLES = (  # what a parameter's name implies; an implication that the values contradict is dropped
    ("block", r"block|threads|work_?group|local_?size|\bwg_?size"),
    ("tile", r"tile|coarsen|work_per|per_thread|\bwpt"),
)


class GPGeneral(OptAlg):
    """Bayesian optimization of an enumerated space.

    Args:
        names: whether parameter names may be read.
        structure: whether thread blocks may be recognised by their values.
        initial: measurements before the first posterior.
        seed: of the draws made here; None takes one from Python's global generator.
    """

    def __init__(
        self, names: bool = True, structure: bool = True, initial: int = 4, seed: int | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        self.costfunc_kwargs = {"scaling": False, "snap": False}
        self.names, self.structure, self.initial, self.seed = names, structure, initial, seed

    def __call__(self, func: Any, searchspace: Any) -> tuple[Any, float]:
        """Measure until the budget ends (`func` raises) or nothing is left; the best configuration and its cost."""
        rng = np.random.default_rng(random.getrandbits(63) if self.seed is None else self.seed)
        view = View(searchspace, self.names, self.structure)
        log = Log(func, searchspace.list)
        for row in first_rows(view, self.initial, rng):
            log.measure(row)
        return search([view], log, rng)


def search(views: Sequence[View], log: Log, rng: np.random.Generator) -> tuple[Any, float]:
    """Measure what the posterior says until nothing is left; of several views of the space the data choose."""
    process = Process(views, rng)
    while log.unseen.any():
        process.learn(log)
        log.measure(process.next_row(log))
    return log.best()


# -- what was measured ------------------------------------------------------------------------------------------------


class Log:
    """The measurements, in order; each configuration is asked for once, and a failure costs infinity."""

    def __init__(self, func: Any, configs: Any) -> None:
        self.func, self.configs = func, configs
        self.rows: list[int] = []
        self.costs: list[float] = []
        self.unseen = np.ones(len(configs), dtype=bool)

    def measure(self, row: int) -> None:
        """Evaluate a row of the space."""
        cost = float(self.func(tuple(self.configs[row])))
        self.rows.append(int(row))
        self.costs.append(cost if abs(cost) < FAILED else math.inf)  # a NaN is a failure too
        self.unseen[row] = False

    def best(self) -> tuple[Any, float]:
        """The best configuration and its cost."""
        place = int(np.argmin(self.costs))
        return tuple(self.configs[self.rows[place]]), self.costs[place]


class Target:
    """log cost, 0 at the median and -1 at the best, compressed above the median; failures at the 90th percentile.

    The bad half of a space spans orders of magnitude that say nothing about where the best is. The scale is that of the
    measurements it was made from, so that a later one does not change the earlier; or, if the distance in log cost from the
    best to the median is known, `scale`.
    """

    def __init__(self, costs: np.ndarray, scale: float = 0.0) -> None:
        valid = costs[costs < math.inf]
        self.sign = 0.0 if not len(valid) else 1.0 if valid.min() > 0 else -1.0 if valid.max() < 0 else 0.0
        level = self.level(valid) if len(valid) else np.zeros(1)
        self.middle = float(level.min()) + scale if scale else float(np.median(level))
        self.scale = float(self.middle - level.min()) or float(np.ptp(level)) or 1.0
        self.failed = 0.0
        self.failed = float(np.quantile(self(valid), 0.9)) if len(valid) else 0.0

    def level(self, costs: np.ndarray) -> np.ndarray:
        """Logarithms, of the negated cost where the objective is maximised; unchanged where signs mix."""
        if self.sign == 0.0:
            return costs
        return self.sign * np.log(np.maximum(self.sign * costs, 1e-300))

    def __call__(self, costs: np.ndarray) -> np.ndarray:
        """Targets of costs (m,)."""
        y = np.full(len(costs), self.failed)
        valid = costs < math.inf
        y[valid] = (self.level(costs[valid]) - self.middle) / self.scale
        y[valid] = np.where(y[valid] > 0, np.log1p(np.maximum(y[valid], 0.0)), y[valid])
        return y


# -- what is seen of a configuration ----------------------------------------------------------------------------------


class View:
    """The space as features and as a penalty.

    Attributes:
        index: int16 (n, d), value indices of the parameters that vary.
        names, values: of these parameters.
        block, tile: which of them span the thread block, and the work of a thread.
        prior: float32 (n, p), what is thought of each configuration beforehand, in units of the target: here p is 1, how
            far it departs from what is usual, 0 to 2; p is 0 if nothing is known.
        slope, spread: (p,), mean and standard deviation of the weights of these, which the data decide.
        scale: distance in log cost from the best to the median, if it is known; else 0.
        odds: logarithm of the odds that this view has against another, before anything was measured.
    """

    odds = 0.0

    def __init__(self, searchspace: Any, names: bool = True, structure: bool = True) -> None:
        index = np.asarray(searchspace.get_list_param_indices_numpy())
        vary = [j for j in range(index.shape[1]) if index[:, j].min() < index[:, j].max()]
        keys = list(searchspace.param_names)
        self.index = index[:, vary].astype(np.int16)
        self.names = [keys[j] for j in vary]
        self.values = [list(searchspace.tune_params[keys[j]]) for j in vary]
        self.numeric = [j for j, values in enumerate(self.values) if is_numeric(values)]
        self.block, self.tile = self._roles(names, structure)
        penalty = self._penalty()
        self.prior = penalty[:, None][:, : int(np.ptp(penalty) > 0)]
        self.slope, self.spread = np.full(self.prior.shape[1], SLOPE), np.full(self.prior.shape[1], SLOPE_SPREAD)
        self.scale = 0.0
        self._tables = [feature_table(values, np.unique(self.index[:, j])) for j, values in enumerate(self.values)]
        self._range = self._product_features(None)

    def __len__(self) -> int:
        return len(self.index)

    def column(self, j: int, rows: Any = slice(None)) -> np.ndarray:
        """Values of a numeric parameter, float64 (r,)."""
        return np.array(self.values[j], dtype=float)[self.index[rows, j]]

    def features(self, rows: Any = slice(None)) -> np.ndarray:
        """What the process sees of some rows, float32 (r, f), each column about within [0, 1]."""
        columns = [table[:, self.index[rows, j]] for j, table in enumerate(self._tables)]
        if len(self.block) > 1:
            low, span = self._range
            columns.append((self._product_features(rows) - low) / span)
        count = len(self.index[rows])
        return np.concatenate([np.zeros((0, count)), *columns]).T.astype(np.float32, order="C")

    def neighbours(self, rows: np.ndarray, row: int) -> np.ndarray:
        """Which of `rows` differ from `row` in one parameter, bool (r,); the thread block, however many span it, is one."""
        differ = self.index[rows] != self.index[row]
        apart = differ.sum(axis=1)
        if self.block:
            block = differ[:, self.block]
            apart += block.any(axis=1) - block.sum(axis=1)
        return apart == 1

    def _product_features(self, rows: Any) -> Any:
        """Logarithm and power of two of the threads in a block, (2, r); for rows None, their lowest values and ranges."""
        threads = self._threads(slice(None) if rows is None else rows)
        both = np.stack([np.log2(np.maximum(threads, 1.0)), twos(threads, 9)])
        if rows is not None:
            return both
        low = both.min(axis=1, keepdims=True)
        return low, np.maximum(both.max(axis=1, keepdims=True) - low, 1e-9)

    def _threads(self, rows: Any = slice(None)) -> np.ndarray:
        product = np.ones(len(self.index[rows]))
        for j in self.block:
            product = product * self.column(j, rows)
        return product

    def _roles(self, names: bool, structure: bool) -> tuple[list[int], list[int]]:
        """Which parameters span the block, and which the work of a thread."""
        block = self._capped() if structure else []
        said = [next((r for r, p in ROLES if names and re.search(p, name.lower())), "") for name in self.names]
        if not block:
            block = [j for j in self.numeric if said[j] == "block"]
            self.block = block
            most = self._threads().max(initial=0.0)
            if not 64 <= most <= max(THREADS):  # no thread block looks like this, whatever the names say
                block = []
        return block, [j for j in self.numeric if said[j] == "tile" and j not in block]

    def _capped(self) -> list[int]:
        """Parameters whose product the restrictions cap at a limit on threads: a thread block, under whatever name."""
        found: set[int] = set()
        columns = {j: self.column(j) for j in self.numeric}
        for a in self.numeric:
            for b in self.numeric:
                most = float((columns[a] * columns[b]).max()) if a < b else 0.0
                if most in THREADS and columns[a].max() * columns[b].max() > most:
                    found |= {a, b}
        return sorted(found)

    def _penalty(self) -> np.ndarray:
        """Halvings or doublings of the threads beyond 64 to 512, idle lanes of the last warp, odd sizes, work beyond 2 to 8."""
        total = np.zeros(len(self.index))
        if self.block:
            threads = np.maximum(self._threads(), 1.0)
            size = np.log2(threads)
            total += np.maximum(0.0, 6.0 - size) + np.maximum(0.0, size - 9.0)
            total += np.ceil(threads / 32.0) * 32.0 / threads - 1.0 + 0.5 * (threads % 32 != 0)
            odd = [np.log2(np.maximum(self.column(j), 1.0)) % 1 != 0 for j in self.block]
            total += 0.5 * np.mean(odd, axis=0)
        if self.tile:
            work = np.sum([np.log2(np.maximum(self.column(j), 1.0)) for j in self.tile], axis=0)
            total += 0.5 * np.maximum(0.0, work - 3.0) + 0.25 * np.maximum(0.0, 1.0 - work)
        return (np.minimum(total, 4.0) / 2.0).astype(np.float32)


def is_numeric(values: list[Any]) -> bool:
    """Whether values are numbers; booleans are not."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)


def twos(values: np.ndarray, most: int = 5) -> np.ndarray:
    """How often 2 divides each value, up to `most` times; 0 for 0 and for fractions."""
    count = sum((values % 2.0**k == 0).astype(float) for k in range(1, most + 1))
    return np.where(values == 0, 0.0, count)


def feature_table(values: list[Any], used: np.ndarray) -> np.ndarray:
    """Features of each value of one parameter, (f, values): two values 0 and 1; numbers by the mean of rank and logarithm, and by
    their power of two where they are large and irregular; anything else one-hot."""
    table = np.zeros((1, len(values)))
    if len(used) == 2:
        table[0, used[1]] = 1.0
        return table
    if not is_numeric(values):
        return 0.7 * np.eye(len(values))[used]
    numbers = np.array(values, dtype=float)
    these = numbers[used]
    positive = these[these > 0]
    shift = 0.0 if these.min() > 0 else (positive.min() if len(positive) else 1.0) - these.min()
    level = np.log(these + shift)
    rank = np.argsort(np.argsort(these)) / (len(used) - 1)
    table[0, used] = 0.5 * (rank + (level - level.min()) / np.ptp(level))
    if these.min() > 0 and these.max() >= 16 and (np.log2(these) % 1 != 0).any():
        table = np.concatenate([table, twos(numbers)[None] / 5.0])
    return table


def first_rows(view: View, count: int, rng: np.random.Generator) -> list[int]:
    """Rows far apart (maximin, L1) within the favoured share of the space; anywhere if nothing is favoured."""
    pool = np.arange(len(view)) if len(view) < 200_000 else rng.choice(len(view), 200_000, replace=False)
    if view.prior.shape[1]:
        penalty = view.prior[pool] @ view.slope
        most = np.partition(penalty, place := min(max(count, int(FAVOURED * len(pool))), len(pool)) - 1)[place]
        pool = pool[penalty <= most + 1e-6]
    pool = rng.permutation(pool)[:3000]
    seen = view.features(pool)
    chosen = [0]
    gap = np.abs(seen - seen[0]).sum(axis=1)
    while len(chosen) < min(count, len(pool)):
        gap[chosen] = -1.0
        chosen.append(int(np.argmax(gap + 1e-6 * rng.random(len(gap)))))
        gap = np.minimum(gap, np.abs(seen - seen[chosen[-1]]).sum(axis=1))
    return pool[chosen].tolist()


# -- the process ------------------------------------------------------------------------------------------------------


class Process:
    """Posterior of all candidates. With K = L L' over m measurements and V = L^-1 K(measured, candidates), the mean is V' L^-1 y
    and the variance k(x, x) - sum V^2; one more measurement is one more row of V and one more entry of
    L^-1 y, and no system is solved."""

    def __init__(self, views: Sequence[View], rng: np.random.Generator) -> None:
        self.views, self.view, self.rng, self.due = views, views[0], rng, 0
        self.whole = len(self.view) <= CANDIDATES
        self.rows = np.arange(len(self.view)) if self.whole else np.zeros(0, dtype=np.int64)
        self.x = self.view.features(self.rows)
        self.starts = [start_of(view) for view in views]
        self.thetas = list(self.starts)
        self.theta = self.thetas[0]
        self.active: list[int] = []
        self.centres: list[int] = []  # whose neighbours `near` tells, among the candidates as they are

    def learn(self, log: Log) -> None:
        """Take in the last measurement; fit and rebuild when it is time."""
        count = len(log.rows)
        if count >= self.due or len(self.active) >= ACTIVE:
            self.due = math.ceil(count * GROWTH) if count > 10 else count + 1
            self._rebuild(log)
        else:
            self._append(log.rows[-1], log.costs[-1])

    def next_row(self, log: Log) -> int:
        """The candidate of largest expected improvement of the measured value; of the best ones' neighbours if there is none.

        A model that expects nothing anywhere has nothing to lose by looking where it is most often wrong: at what stands out
        from its surroundings, beside what is already good.
        """
        left = log.unseen[self.rows]
        if not left.any():  # all candidates are measured, the space is not
            self._rebuild(log)
            left = log.unseen[self.rows]
        variance = np.maximum(self.prior - self.explained, 1e-9) + self.noise
        gain = expected_improvement(self.best, self.mean, np.sqrt(self.signal * variance))
        gain[~left] = -1.0
        if gain.max() < FLAT and (near := self._near_the_best(log) & left).any():
            gain[~near] = -1.0
        return int(self.rows[gain.argmax()])

    def _near_the_best(self, log: Log) -> np.ndarray:
        """Which candidates are neighbours of one of the best measurements, bool (c,)."""
        best = [log.rows[i] for i in np.argsort(log.costs, kind="stable")[:NEIGHBOURED]]
        if best != self.centres:
            self.centres = best
            self.near = np.logical_or.reduce([self.view.neighbours(self.rows, row) for row in best])
        return self.near

    # The rows that are remembered, and those that are looked at

    def _rebuild(self, log: Log) -> None:
        rows, costs = np.array(log.rows), np.array(log.costs)
        target = Target(costs, self.view.scale)
        y = target(costs)
        keep = np.arange(len(y))
        if len(keep) > ACTIVE * 3 // 4:  # the best and the latest
            keep = np.unique(np.concatenate([np.argsort(y, kind="stable")[: ACTIVE // 2], keep[-ACTIVE // 4 :]]))
        self.target, self.best, self.active = target, float(y.min()), rows[keep].tolist()
        if len(keep) >= 3:
            self._fit(rows[keep], y[keep])
        self._build(self.view.features(rows[keep]), y[keep], log)

    def _build(self, seen: np.ndarray, y: np.ndarray, log: Log) -> None:
        """L^-1, V, mean and variance from the measurements `seen` (m, f) with targets y (m,)."""
        m = len(y)
        given = self.view.prior[self.active]
        root, self.noise = factor(self._kernel(seen, seen, given, given).astype(float), math.exp(self.theta[-1]))
        inverse = np.linalg.inv(root)
        room = min(ACTIVE, m + self.due - len(log.rows)) + 2
        white = inverse @ (y - given @ self.view.slope)
        covariance = self._look_at(seen, given, inverse.T @ white, room, log)
        self.centres = []
        own = self.view.prior[self.rows]
        self.v = np.zeros((room, len(self.rows)), dtype=np.float32)
        self.v[:m] = inverse.astype(np.float32) @ covariance
        self.prior = (2.0 + np.square(own) @ np.square(self.view.spread)).astype(np.float32)
        self.explained = np.einsum("ij,ij->j", self.v[:m], self.v[:m])
        self.mean = white.astype(np.float32) @ self.v[:m] + own @ self.view.slope
        self.white = white.tolist()
        self.signal = (white @ white + 1.0) / (m + 2.0)

    def _look_at(self, seen: np.ndarray, given: np.ndarray, weights: np.ndarray, room: int, log: Log) -> np.ndarray:
        """Choose the candidates: all, if they fit; else the best by posterior mean and, a third, at random.

        Returns:
            Their covariance with the measurements, (m, candidates).
        """
        most = min(CANDIDATES, CELLS // room)
        if not self.whole:
            self.rows = self._pool(log, most)
            self.x = self.view.features(self.rows)
        elif len(self.rows) < len(self.view):
            self.rows, self.x = np.arange(len(self.view)), self.view.features()
        own = self.view.prior[self.rows]
        covariance = self._kernel(seen, self.x, given, own)
        if len(self.rows) > most:
            mean = weights.astype(np.float32) @ covariance + own @ self.view.slope
            mean[~log.unseen[self.rows]] = np.inf
            order = np.argsort(mean)
            best, rest = order[: 2 * most // 3], order[2 * most // 3 :]
            keep = np.sort(np.concatenate([best, self.rng.choice(rest, most - len(best), replace=False)]))
            self.rows, self.x, covariance = self.rows[keep], self.x[keep], covariance[:, keep]
        return covariance

    def _pool(self, log: Log, most: int) -> np.ndarray:
        """Of a space too large to look at: neighbours of the best (two values changed, at most), the last best, and at random."""
        order = np.argsort(log.costs)[:6]
        index = self.view.index
        near = [np.flatnonzero((index != index[log.rows[i]]).sum(axis=1) <= 2)[: most // 4] for i in order]
        fresh = self.rng.integers(len(index), size=most)
        pool = np.unique(np.concatenate([*near, self.rows[: most // 3], fresh]))
        unseen = pool[log.unseen[pool]]
        return unseen if len(unseen) else np.flatnonzero(log.unseen)[:most]

    def _append(self, row: int, cost: float) -> None:
        """One more measurement, by a rank-one update."""
        m = len(self.active)
        y = float(self.target(np.array([cost]))[0])
        rows = np.array([row])
        given, own = self.view.prior[rows], self.view.prior[self.rows]
        place = int(np.flatnonzero(self.rows == row)[0])
        known = self.v[:m, place].copy()  # the new row of L, left of its diagonal
        pivot = math.sqrt(
            max(float(self.prior[place] + self.noise - known @ known), self.noise)
        )  # exactly, it is never less
        covariance = self._kernel(self.view.features(rows), self.x, given, own)[0]
        self.v[m] = (covariance - known @ self.v[:m]) / pivot
        white = (y - float(given[0] @ self.view.slope) - float(known @ np.array(self.white))) / pivot
        self.white.append(white)
        self.active.append(row)
        self.mean += np.float32(white) * self.v[m]
        self.explained += self.v[m] ** 2
        self.signal = (float(np.square(self.white).sum()) + 1.0) / (m + 3.0)
        self.best = min(self.best, y)

    # Kernel and hyperparameters

    def _kernel(self, a: np.ndarray, b: np.ndarray, pa: np.ndarray, pb: np.ndarray) -> np.ndarray:
        """Covariance in units of the signal variance: Matern-3/2, an unknown offset, unknown weights of the prior."""
        inverse = np.exp(-self.theta[:-1]).astype(np.float32)
        a, b = a * inverse, b * inverse
        r = (-2.0 * a) @ b.T  # in place from here on: these are the largest arrays
        r += np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
        np.sqrt(np.maximum(r, 0.0, out=r), out=r)
        r *= np.float32(SQRT3) if r.dtype == np.float32 else SQRT3
        k = np.exp(-r)
        r += 1.0
        k *= r
        k += 1.0 + (pa * np.square(self.view.spread).astype(np.float32)) @ pb.T
        return k

    def _fit(self, rows: np.ndarray, y: np.ndarray) -> None:
        """Fit the hyperparameters of each view, and take the view that explains the measurements best."""
        if len(y) > FITTED:
            best = np.argsort(y, kind="stable")[: FITTED // 2]
            others = np.setdiff1d(np.arange(len(y)), best)
            some = np.concatenate([best, self.rng.choice(others, FITTED - len(best), replace=False)])
            rows, y = rows[some], y[some]
        misfits = []
        for place, view in enumerate(self.views):
            given = view.prior[rows]
            evidence = Evidence(view.features(rows), given * view.spread, y - given @ view.slope, self.starts[place])
            misfit, self.thetas[place] = minimum(evidence, self.thetas[place], 25 if len(y) < 30 else 12)
            misfits.append(misfit - view.odds)
        place = int(np.argmin(misfits))
        self.theta = self.thetas[place]
        if self.view is not self.views[place]:
            self.view = self.views[place]
            self.x = self.view.features(self.rows)


def factor(gram: np.ndarray, noise: float) -> tuple[np.ndarray, float]:
    """L with L L' = gram + noise, (m, m), and that noise: ten times as much as long as float32 has left `gram` indefinite."""
    while True:
        try:
            return np.linalg.cholesky(gram + (noise + 1e-6) * np.eye(len(gram))), noise
        except np.linalg.LinAlgError:
            if not noise < 1e3:  # no number in `gram`, which no noise mends
                raise
            noise *= 10.0


def start_of(view: View) -> np.ndarray:
    """Log length scales and log noise before anything was measured, (f + 1,)."""
    count = view.features(slice(0, 1)).shape[1]
    return np.append(np.full(count, math.log(LENGTH * math.sqrt(max(count, 1)))), math.log(NOISE))


def minimum(evidence: Evidence, theta: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Least value near `theta` and where it lies, by Rprop: the sign of the gradient decides."""
    value, slope = evidence(theta)
    least, place = value, theta
    step = np.full(len(theta), 0.2)
    for _ in range(steps):
        theta = theta - np.sign(slope) * step
        theta[-1] = min(max(theta[-1], LEAST_NOISE), 0.0)
        value, after = evidence(theta)
        if value < least:
            least, place = value, theta
        step = np.clip(step * np.where(after * slope > 0, 1.3, np.where(after * slope < 0, 0.5, 1.0)), 0.01, 0.8)
        slope = after
    return least, place


class Evidence:
    """Negative log posterior of the hyperparameters and its gradient, the signal variance integrated out:

    (m + 2)/2 log(y' K^-1 y + 1) + 1/2 log det K + prior
    """

    def __init__(self, x: np.ndarray, given: np.ndarray, y: np.ndarray, start: np.ndarray) -> None:
        self.x, self.y, self.start = x.astype(float), y, start
        self.fixed = 1.0 + given @ given.T
        self.spread = np.append(np.full(len(start) - 1, LENGTH_SPREAD), NOISE_SPREAD)

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value, and gradient (f + 1,), at log length scales and log noise `theta`."""
        m, z = len(self.y), self.x * np.exp(-theta[:-1])
        squares = np.square(z).sum(axis=1)
        r = SQRT3 * np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * z @ z.T, 0.0))
        decay, noise = np.exp(-r), math.exp(theta[-1])
        root = np.linalg.cholesky((1.0 + r) * decay + self.fixed + (noise + 1e-6) * np.eye(m))
        half = np.linalg.inv(root)
        inverse = half.T @ half
        alpha = inverse @ self.y
        misfit = float(self.y @ alpha) + 1.0
        off = (theta - self.start) / self.spread
        value = 0.5 * (m + 2) * math.log(misfit) + float(np.log(np.diag(root)).sum()) + 0.5 * float(off @ off)
        w = 0.5 * inverse - 0.5 * (m + 2) / misfit * np.outer(alpha, alpha)  # d value / d K
        g = w * (3.0 * decay)  # d K / d log length_j = 3 exp(-r) z_j^2, z_j the scaled difference
        lengths = 2.0 * (np.square(z).T @ g.sum(axis=1) - ((g @ z) * z).sum(axis=0))
        return value, np.append(lengths, noise * np.trace(w)) + off / self.spread


def expected_improvement(best: float, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """E max(best - y, 0) for y normal, (c,)."""
    z = (best - mean) / spread
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))  # Abramowitz and Stegun 26.2.17: NumPy has no normal integral
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    below = np.where(z > 0, 1.0 - density * series, density * series)
    return spread * (z * below + density)
