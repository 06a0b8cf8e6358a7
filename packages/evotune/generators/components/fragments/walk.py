"""A walk from neighbour to neighbour: what it proposes, when it moves, when it starts again elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .table import Log, Table

TEMPERATURE = 0.3  # in units of the log's scale


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


def accepts_better(new: float, old: float, heat: float, rng: np.random.Generator) -> bool:
    """Greedy, first improvement: move to a neighbour that is no worse."""
    return new <= old


def accepts_annealing(new: float, old: float, heat: float, rng: np.random.Generator) -> bool:
    """Metropolis' rule: to a worse neighbour with probability exp(-difference / temperature)."""
    return new <= old or rng.random() < math.exp(-min((new - old) / max(TEMPERATURE * heat, 1e-9), 700.0))


def accepts_threshold(new: float, old: float, heat: float, rng: np.random.Generator) -> bool:
    """Threshold accepting: to whatever is worse by less than a threshold that shrinks."""
    return new <= old + TEMPERATURE * heat


def accepts_always(new: float, old: float, heat: float, rng: np.random.Generator) -> bool:
    """Tabu search: always move on. What was seen is not proposed again, so the log is the tabu list."""
    return new < math.inf
