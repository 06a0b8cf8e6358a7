"""An optimizer at Kernel Tuner's wheel: its own strategies by name, and anything shaped like its OptAlg."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from kernel_tuner.interface import Options, strategy_map
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.strategies.common import CostFunc
from kernel_tuner.strategies.wrapper import OptAlgWrapper

from metabench import registry
from metabench.errors import UserError, choose
from metabench.space import Space

from .runner import Budget, MeasuringRunner

Optimizer = str | Callable[[Any, Any], Any]
"""A name, or a callable `optimizer(func, searchspace)`."""


class GuardedCostFunc(CostFunc):
    """Kernel Tuner's cost function under our rules: values by equality (64.0 is 64), +inf for whatever has no time."""

    def _normalize_and_validate_config(self, x: Any, check_restrictions: bool = True) -> tuple[Any, bool]:
        space: Space = self.runner.space
        if self.snap:
            x, _ = super()._normalize_and_validate_config(x, check_restrictions)
        row = space.find(x)
        self.runner.illegal += row is None
        return ((None,) * len(space.names), False) if row is None else (space[row], True)

    def eval_all(self, xs: Sequence[Any], check_restrictions: bool = True) -> list[float]:
        """Milliseconds, +inf for failures and for what is no configuration."""
        values = super().eval_all(xs, check_restrictions)
        return [math.inf if value == sys.float_info.max else value for value in values]


class GuardedOptAlg(OptAlgWrapper):
    """Kernel Tuner's wrapper of an OptAlg, which hands it a `GuardedCostFunc`."""

    def tune(self, searchspace: Searchspace, runner: MeasuringRunner, tuning_options: Any) -> list[dict[str, Any]]:
        """Run it; returns nothing of its own, since the runner keeps all outcomes."""
        keywords = getattr(self.optimizer, "costfunc_kwargs", {"scaling": False, "snap": False})
        func = GuardedCostFunc(searchspace, tuning_options, runner, **keywords)
        if keywords.get("scaling"):
            func.get_bounds_x0_eps()
        self.optimizer(func, searchspace)
        return []


def drive(
    strategy: Any, runner: MeasuringRunner, options: Mapping[str, Any] | None = None, seed: int | None = None
) -> None:
    """Let an optimizer ask `runner` until it returns or is stopped.

    Args:
        strategy: what `strategy_of` makes of the optimizer.
        options: `strategy_options` of one of Kernel Tuner's strategies.
        seed: for an optimizer in another process, which the global generators of this one do not reach.

    Raises:
        metabench.replay.Stop: the budget is spent.
    """
    space = runner.space
    restrictions = [restriction.text for restriction in space.restrictions]
    searchspace = Searchspace(space.tune_params, restrictions, runner.get_device_info().max_threads)
    if searchspace.size != len(space):
        raise UserError(
            f"Kernel Tuner reads the restrictions otherwise: {searchspace.size} configurations, not {len(space)}"
        )
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a failure costs sys.float_info.max, which strategies calculate with
        strategy.tune(searchspace, runner, _tuning_options(strategy, runner, options, seed))


def strategy_of(optimizer: Any) -> Any:
    """An object with Kernel Tuner's `tune(searchspace, runner, tuning_options)`.

    Args:
        optimizer: a name (of ours, of Kernel Tuner's, or a .py file), a callable `optimizer(func, searchspace)`, or an object
            that has such a `tune` already.
    """
    if isinstance(optimizer, str):
        return _by_name(optimizer)
    if callable(getattr(optimizer, "tune", None)):
        return optimizer
    if callable(optimizer):
        return GuardedOptAlg(optimizer)
    raise UserError(f"an optimizer is a name or a callable (func, searchspace), not {optimizer!r}")


def _by_name(name: str) -> Any:
    if name in strategy_map:
        return strategy_map[name]
    known = registry.available()
    if name in known or name.endswith(".py"):
        return GuardedOptAlg(registry.make(name)())
    choose(name, {*known, *strategy_map}, "optimizer")
    raise AssertionError("unreachable: choose raises")


def _tuning_options(
    strategy: Any, runner: MeasuringRunner, options: Mapping[str, Any] | None, seed: int | None
) -> Options:
    """What Kernel Tuner's interface would have put together. Some strategies stop after 100 evaluations if not told otherwise."""
    strategy_options = dict(options or {})
    if strategy is not strategy_map["brute_force"]:  # it refuses the option
        strategy_options["max_fevals"] = runner.most
    return Options(
        strategy_options=Options(strategy_options),
        max_fevals=runner.most,
        objective=["time"],
        objective_higher_is_better=[False],
        budget=Budget(runner),
        tune_params=runner.space.tune_params,
        cache={},
        cachefile=None,
        metrics=None,
        verbose=False,
        seed=seed,
    )
