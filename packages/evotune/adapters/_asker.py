"""Between a strategy and `func`: what was asked so far, and when a strategy asks for nothing new any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any


class Stuck(Exception):
    """A strategy went on and on without evaluating anything."""


class Asker:
    """Asks `func` for a strategy.

    Args:
        func: what our optimizers are called with.
        patience: steps in a row without a new configuration after which the strategy counts as stuck.

    Attributes:
        seen: the configurations that were evaluated.
        best: the best of them and its cost; (None, inf) before the first.
        stopped: what `func` raised, if it did: the end of the budget.
    """

    def __init__(self, func: Callable[[Sequence[Any]], float], patience: int) -> None:
        self.func, self.patience = func, patience
        self.seen: set[tuple[Any, ...]] = set()
        self.best: tuple[Any, float] = (None, math.inf)
        self.idle = 0
        self.stopped: BaseException | None = None

    def cost(self, config: Sequence[Any]) -> float:
        """Evaluate one configuration."""
        config = tuple(config)
        try:
            value = float(self.func(config))
        except BaseException as stop:
            self.stopped = stop
            raise
        self.idle = 0 if config not in self.seen else self.idle + 1
        self.seen.add(config)
        if value < self.best[1] or self.best[0] is None:
            self.best = (config, value)
        return value

    def check(self) -> None:
        """Raise `Stuck` if nothing new was asked for since long."""
        if self.idle > self.patience:
            raise Stuck
