"""A Gaussian process that ranks in turn the whole space and the neighbours of an annealed walk: an evolved program.

Put together by the components generator from programs drawn at random, the best of three such evolutions of 28 programs
(benchmarks/zoo/evolution.py). Seven measurements spread out within what is usual of GPU kernels; then, every other time, the
configuration of largest expected improvement among all unseen ones, and in between the one among the unseen neighbours of a walk
that moves by Metropolis' rule and starts again after 21 measurements without a new best. One measurement in ten is random.

When to use it: hardly ever before `gp_general`, whose parts it has, with which it is level where both were scored with the same
seeds, and which takes less time of its own. It shows what evolution finds. Of a space of more than 30,000 configurations it sees
so many, drawn at random.

Needs NumPy. `kernel_tuner.tune_kernel(..., strategy=OptAlgWrapper(UsualAnnealingGaussian()))`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    from kernel_tuner.strategies.wrapper import OptAlg
except ImportError:  # the program also runs where Kernel Tuner is not installed

    class OptAlg:  # type: ignore[no-redef]
        def __init__(self) -> None:
            self.costfunc_kwargs = {"scaling": False, "snap": False}


PROVENANCE = {
    "kind": "evolved",
    "by": "the components generator",
    "run": "components 1, call 23: benchmarks/zoo/evolution.json",
    "source_sha256": "e272d8452d7434ed5267effcbe5118e7c812dcb75550a43430732eeaae9e6767",
    "spaces": [
        "convolution_milo/A100", "convolution_milo/A4000", "convolution_milo/MI250X",
        "dedispersion_milo/A100", "dedispersion_milo/A4000", "dedispersion_milo/MI250X",
    ],
}  # fmt: skip
SCORES = {  # P under `direct`, its 95 % interval, runs a space: benchmarks/zoo/evolution.py
    "train": (0.934, 0.922, 0.946, 10),
    "test": (0.958, 0.948, 0.966, 10),
    "all 12": (0.946, 0.939, 0.953, 10),
}

FAILED = 1e300  # Kernel Tuner answers a failed configuration with the largest float, other callers with infinity
LARGEST = (
    30_000  # of a larger space, a random sample of this many configurations is searched: time and memory stay bounded
)
THREADS = (256, 1024)  # limits on the threads of a block: OpenCL on AMD; CUDA and HIP
BLOCKS = ("block", "threads", "work_group", "local_size")  # in names of parameters that span a block
TILES = ("tile", "coarsen", "work_per")  # and of those that give a thread more work
FAVOURED = 0.03  # share of the space that is near enough to what is usual
TEMPERATURE = 0.398  # in units of the log's scale
MOST = 500  # measurements that the process remembers: the work per step grows with their number times the size of the space
LENGTH = 0.548  # where the length scales start, in units of the range of a feature and of the root of their number
MARGIN = 0.0279  # improvement asked for at full heat, in units of the targets


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


def numbers(table: Table, j: int) -> np.ndarray:
    """Values of one parameter in all rows, (n,); ones where they are no numbers."""
    values = table.values[j]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return np.array(values if numeric else [1.0] * len(values), dtype=float)[table.index[:, j]]


def threads(table: Table) -> tuple[np.ndarray, list[int]]:
    """Threads of a block in all rows, (n,), and the parameters that span it; ones and none if no block is recognised.

    Two parameters whose product the restrictions cap at a device's limit span the block, whatever they are called; failing that,
    those that are called so, if their product looks like a block.
    """
    columns = [numbers(table, j) for j in range(len(table.values))]
    capped: set[int] = set()
    for a, x in enumerate(columns):
        for b, y in enumerate(columns[:a]):
            most = float((x * y).max())
            if most in THREADS and x.max() * y.max() > most:
                capped |= {a, b}
    block = sorted(capped) or [j for j, name in enumerate(table.names) if any(word in name.lower() for word in BLOCKS)]
    product = np.prod([columns[j] for j in block], axis=0) if block else np.ones(table.size)
    return (product, block) if 64 <= product.max() <= 1024 else (np.ones(table.size), [])


def unusual(table: Table) -> np.ndarray:
    """How far each row is from what is usual, (n,), 0 to 2: threads beyond 64 to 512, idle lanes of the last warp, block sizes
    that are no powers of two, much or hardly any work for a thread."""
    product, block = threads(table)
    total = np.zeros(table.size)
    if block:
        size = np.log2(np.maximum(product, 1.0))
        total += np.maximum(0.0, 6.0 - size) + np.maximum(0.0, size - 9.0) + 0.5 * (product % 32 != 0)
        total += np.ceil(product / 32.0) * 32.0 / product - 1.0
        total += 0.5 * np.mean([np.log2(np.maximum(numbers(table, j), 1.0)) % 1 != 0 for j in block], axis=0)
    named = [j for j, name in enumerate(table.names) if any(word in name.lower() for word in TILES) and j not in block]
    if named:
        work = np.sum([np.log2(np.maximum(numbers(table, j), 1.0)) for j in named], axis=0)
        total += 0.5 * np.maximum(0.0, work - 3.0) + 0.25 * np.maximum(0.0, 1.0 - work)
    return np.minimum(total, 4.0) / 2.0


def initial_usual(table: Table, count: int, rng: np.random.Generator) -> list[int]:
    """A maximin design within the configurations that are nearest to what is usual."""
    order = np.argsort(unusual(table) + 1e-6 * rng.random(table.size))
    pool = order[: max(count, int(FAVOURED * table.size))]
    chosen = [int(rng.integers(len(pool)))]
    gap = np.abs(table.unit[pool] - table.unit[pool[chosen[0]]]).sum(axis=1)
    while len(chosen) < min(count, len(pool)):
        gap[chosen] = -1.0
        chosen.append(int(np.argmax(gap + 1e-6 * rng.random(len(pool)))))
        gap = np.minimum(gap, np.abs(table.unit[pool] - table.unit[pool[chosen[-1]]]).sum(axis=1))
    return pool[chosen].tolist()


def schedule_linear(spent: float) -> float:
    """Down in a straight line."""
    return max(0.0, 1.0 - spent)


class Walk:
    """One point that moves through the space.

    Args:
        neighborhood: "hamming", "two" or "adjacent".
        accepts: rule (new cost, old cost, heat, rng) -> whether to move; costs in units of the log's scale.
        patience: measurements without a new best before the walk starts again.
        restart: where it does: at a "random" place, or at one of the best few ("elite").
    """

    def __init__(
        self, table: Table, rng: np.random.Generator, neighborhood: str, accepts: Callable, patience: int, restart: str
    ) -> None:
        self.table, self.rng = table, rng
        self.neighborhood, self.accepts, self.patience, self.restart = neighborhood, accepts, patience, restart
        self.row: int | None = None
        self.cost, self.best, self.stale = math.inf, math.inf, 0

    def start(self, log: Log) -> None:
        """Stand on the best of what is known."""
        place = int(np.argmin(log.costs))
        self.row, self.cost, self.best = log.rows[place], log.costs[place], log.costs[place]

    def propose(self, log: Log) -> np.ndarray:
        """Unseen neighbours in random order; where there are none, or the walk is stale, it starts again first."""
        near = self.around(log)
        if self.stale >= self.patience or not len(near):
            self.jump(log)
            near = self.around(log)
        return self.rng.permutation(near if len(near) else np.flatnonzero(log.unseen))

    def around(self, log: Log) -> np.ndarray:
        """Unseen neighbours of the point; none while it stands nowhere."""
        if self.row is None:
            return np.flatnonzero(np.zeros(0))
        near = self.table.neighbors(self.row, self.neighborhood)
        return near[log.unseen[near]]

    def jump(self, log: Log) -> None:
        """Start again: at one of the best five, or at whatever is measured next."""
        self.stale, self.row, self.cost = 0, None, math.inf
        if self.restart == "elite":
            place = int(self.rng.choice(np.argsort(log.costs, kind="stable")[:5]))
            self.row, self.cost = log.rows[place], log.costs[place]

    def learn(self, row: int, cost: float, log: Log, heat: float) -> None:
        """Move to the configuration that was measured, or stay."""
        self.stale = 0 if cost < self.best else self.stale + 1
        self.best = min(self.best, cost)
        scale = log.scale()
        if self.row is None or self.accepts(cost / scale, self.cost / scale, heat, self.rng):
            self.row, self.cost = row, cost


def accepts_annealing(new: float, old: float, heat: float, rng: np.random.Generator) -> bool:
    """Metropolis' rule: to a worse neighbour with probability exp(-difference / temperature)."""
    return new <= old or rng.random() < math.exp(-min((new - old) / max(TEMPERATURE * heat, 1e-9), 700.0))


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


def acquire_improvement(mean: np.ndarray, spread: np.ndarray, best: float, heat: float) -> np.ndarray:
    """Expected improvement on the best so far (Jones et al. 1998); where none is to be expected, the nearest to some."""
    spread = np.maximum(spread, 1e-9)
    z = np.clip((best - MARGIN * heat - mean) / spread, -30.0, 30.0)
    below = 0.5 * (1.0 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))  # the normal distribution function, to 1e-3
    gain = spread * (z * below + np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))
    return gain if gain.max() > 1e-9 else z


def pick(rows: np.ndarray, score: np.ndarray) -> int:
    """The row of the highest score. Scores are rounded first, so that the last bit of a sum does not decide."""
    top = float(np.max(np.abs(score))) or 1.0
    return int(rows[int(np.argmax(np.round(score / top, 9)))])


class UsualAnnealingGaussian(OptAlg):
    """Starts from a maximin design within what is usual of GPU kernels, then lets a Gaussian process that expects
    what is usual of GPU kernels rank, by expected improvement, all unseen configurations in turn with the
    moves of simulated annealing."""

    def __call__(self, func: Any, searchspace: Any) -> tuple[tuple, float]:
        """Measure until the budget ends (`func` raises) or nothing is left; the best configuration and its cost."""
        rng = np.random.default_rng(random.getrandbits(64))
        table = Table(searchspace, rng)
        log = Log(func, table)
        for row in initial_usual(table, 7, rng):
            log.measure(row)
            if len(log.rows) > 1 and func.budget_spent_fraction > 0.25:
                break
        walk = Walk(table, rng, "hamming", accepts_annealing, patience=21, restart="random")
        walk.start(log)
        model = GaussianProcess(table, growth=1.65, prior="usual")
        while log.unseen.any():
            heat = schedule_linear(func.budget_spent_fraction)
            if rng.random() < 0.0967:
                pool = rng.permutation(np.flatnonzero(log.unseen))[:1]
            else:
                pool = np.flatnonzero(log.unseen) if len(log.rows) % 2 == 0 else walk.propose(log)
            model.learn(log)
            mean, spread = model.predict(pool)
            row = pick(pool, acquire_improvement(mean, spread, targets(log.costs).min(), heat))
            cost = log.measure(row)
            walk.learn(row, cost, log, heat)
        return log.best()
