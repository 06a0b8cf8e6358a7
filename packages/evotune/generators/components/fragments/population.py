"""A population that recombines: parents by tournament, children by crossover and mutation, the worst or the oldest replaced."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .table import Log, Table

DIFFERENTIAL = 0.7


class Population:
    """Configurations that breed.

    Args:
        size: how many are kept.
        crossover: rule (parents, rng) -> point of the unit cube (d,), for parents (3, d), the best first.
        mutation: chance that a parameter of a child takes a random value.
        tournament: a parent is the best of this many.
        ageing: who leaves: the oldest but the best (True), or the worst.
    """

    def __init__(
        self,
        table: Table,
        rng: np.random.Generator,
        size: int,
        crossover: Callable,
        mutation: float,
        tournament: int,
        ageing: bool,
    ) -> None:
        self.table, self.rng = table, rng
        self.size, self.crossover, self.mutation = size, crossover, mutation
        self.tournament, self.ageing = tournament, ageing
        self.members: list[tuple[float, int]] = []  # (cost, row), oldest first

    def propose(self, log: Log, count: int = 8) -> np.ndarray:
        """Unseen rows nearest to `count` children, without duplicates."""
        if len(self.members) < 3:
            return self.rng.permutation(np.flatnonzero(log.unseen))[:count]
        children = [self.table.nearest(self.child(), log.unseen) for _ in range(count)]
        return np.array(list(dict.fromkeys(children)))

    def child(self) -> np.ndarray:
        """A point of the unit cube, (d,), from three parents, mutated."""
        parents = self.table.unit[[row for _, row in sorted(self.select() for _ in range(3))]]
        point = self.crossover(parents, self.rng)
        mutated = self.rng.random(len(point)) < self.mutation
        return np.where(mutated, self.rng.random(len(point)), point)

    def select(self) -> tuple[float, int]:
        """The best of a few at random."""
        return min(self.members[k] for k in self.rng.integers(len(self.members), size=self.tournament))

    def learn(self, row: int, cost: float) -> None:
        """Take in what was measured; one member leaves when there are too many."""
        self.members.append((cost, row))
        if len(self.members) > self.size:
            best = min(self.members)
            self.members.remove(next(m for m in self.members if m != best) if self.ageing else max(self.members))


def crossover_uniform(parents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each parameter from one of two parents."""
    return np.where(rng.random(parents.shape[1]) < 0.5, parents[0], parents[1])


def crossover_onepoint(parents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The first parameters from one parent, the others from another."""
    return np.where(np.arange(parents.shape[1]) < rng.integers(parents.shape[1] + 1), parents[0], parents[1])


def crossover_differential(parents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Differential evolution: the best parent plus a scaled difference of the others, in about half of the parameters."""
    moved = np.clip(parents[0] + DIFFERENTIAL * (parents[1] - parents[2]), 0.0, 1.0)
    return np.where(rng.random(parents.shape[1]) < 0.6, moved, parents[0])
