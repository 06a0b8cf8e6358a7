"""Kernel Tuner's runner and budget, over `func`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._asker import Asker

_IDLE = 20_000  # look-ups in the search space without an evaluation, after which a strategy counts as stuck


class Runner(Asker):
    """What a strategy of Kernel Tuner is given as `runner` and as `tuning_options.budget`."""

    def __init__(self, func: Callable[[Sequence[Any]], float], searchspace: Any) -> None:
        super().__init__(func, _IDLE)
        self.names = list(searchspace.tune_params)

    def looked(self) -> None:
        """The strategy looked something up in the search space."""
        self.idle += 1
        self.check()

    def run(self, configs: Sequence[Sequence[Any]], tuning_options: Any) -> list[dict[str, Any]]:
        """Evaluate a batch, one after the other, into Kernel Tuner's result dictionaries."""
        from kernel_tuner.util import RuntimeFailedConfig

        results = []
        for config in configs:
            cost = self.cost(config)
            result: dict[str, Any] = {**dict(zip(self.names, config, strict=True)), "cost": cost}
            if not abs(cost) < sys.float_info.max:
                result["__error__"] = RuntimeFailedConfig()
            results.append(result)
        return results

    def add_strategy_time(self, seconds: float) -> None:
        """Own time is accounted for elsewhere."""

    def raise_exception_if_done(self) -> None:
        """`func` raises at the end; here only a strategy that asks for nothing new is stopped."""
        self.looked()

    def get_fraction_consumed(self) -> float:
        """How much of the budget is spent."""
        return float(getattr(self.func, "budget_spent_fraction", 0.0))
