"""Kernel Tuner's strategies as optimizers of ours, and optimizers of ours as Kernel Tuner strategies.

Faults of Kernel Tuner 1.5.0's strategies that are kept from users here, each measured on its `OptAlgWrapper` and
simulation mode:
- random_sample draws a tenth of the space; mls, greedy_mls and greedy_ils stop after 100 evaluations under
  a time budget.
- genetic_algorithm shrinks its population to 2 where the space has fewer than 52 configurations; diff_evo,
  firefly_algorithm and adaptive_tabu_greywolf index past the end of a population that is larger than the space.
- diff_evo's first population comes from an unseeded generator.
- greedy_ils raises on a configuration without neighbours; on spaces with few neighbours others loop for
  ever without evaluating anything.
What is kept: their algorithms and defaults, the wrong order of HybridVNDX's elites included.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metabench.errors import UserError, choose

ALIASES = {"random": "random_sample", "ga": "genetic_algorithm", "sa": "simulated_annealing", "de": "diff_evo"}
"""Short names for Kernel Tuner's strategies."""

_STRATEGIES = (
    "random_sample",
    "genetic_algorithm",
    "diff_evo",
    "pso",
    "firefly_algorithm",
    "simulated_annealing",
    "dual_annealing",
    "basinhopping",
    "minimize",
    "mls",
    "greedy_mls",
    "ordered_greedy_mls",
    "greedy_ils",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
)
_NEEDS = {"dual_annealing": "scipy", "basinhopping": "scipy", "minimize": "scipy"}
_STOPS_AFTER_100 = ("mls", "greedy_mls", "ordered_greedy_mls", "greedy_ils")
_SMALL = 4  # spaces up to this size are measured whole, in random order: most strategies need more
_IDLE = 20_000  # look-ups in the search space without an evaluation, after which a strategy counts as stuck


def kernel_tuner_names() -> list[str]:
    """Kernel Tuner's strategies that can be had here, by its own names."""
    if importlib.util.find_spec("kernel_tuner") is None:
        return []
    return [name for name in _STRATEGIES if name not in _NEEDS or importlib.util.find_spec(_NEEDS[name])]


class KernelTunerStrategy:
    """A strategy of Kernel Tuner as an optimizer: `strategy(func, searchspace)`.

    It draws from the global generators of `random` and `numpy.random`: seed these.

    Args:
        name: Kernel Tuner's name, or "random", "ga", "sa", "de".
        restart: whether a strategy that returns with budget left is started again. Kernel Tuner's own behaviour is
            not to.
        options: `strategy_options`.

    Raises:
        UserError: no such strategy (the allowed ones are listed), or an option that it does not have.
    """

    def __init__(self, name: str, restart: bool = True, **options: Any) -> None:
        names = kernel_tuner_names()
        if not names:
            raise UserError("Kernel Tuner is not installed: pip install 'metaopt-toolkit[tune]'")
        self.name = ALIASES.get(name) or choose(name, names, "Kernel Tuner strategy")
        self.restart, self.options = restart, options
        module = _module(self.name)
        allowed = {*getattr(module, "_options", {}), "max_fevals", "x0", "constraint_aware"}
        if unknown := sorted(set(options) - allowed):
            raise UserError(f"{self.name} has no option {', '.join(unknown)}; it has {', '.join(sorted(allowed))}")
        self._tune: Callable[[Any, Any, Any], Any] = module.tune

    def __call__(self, func: Callable[[Sequence[Any]], float], searchspace: Any) -> tuple[Any, float]:
        """Run until the budget ends or nothing is left; the best configuration and its cost."""
        runner = _Runner(func, searchspace)
        if searchspace.size <= _SMALL:
            for config in searchspace.get_random_sample(searchspace.size):
                runner.cost(config)
            return runner.best
        space = _Space(searchspace, runner, never_isolated=self.name == "greedy_ils")
        fruitless = 0
        while len(runner.seen) < searchspace.size and fruitless < 3:
            before = len(runner.seen)
            self._run_once(space, runner)
            fruitless = 0 if len(runner.seen) > before else fruitless + 1
            if not self.restart:
                break
        return runner.best

    def _run_once(self, space: _Space, runner: _Runner) -> None:
        from kernel_tuner.interface import Options
        from kernel_tuner.util import StopCriterionReached

        runner.idle = 0
        tuning_options = Options(
            strategy_options=Options(self._strategy_options(space)), objective=["cost"], objective_higher_is_better=[False],
            tune_params=space.tune_params, budget=runner, verbose=False, max_fevals=space.size,
        )  # fmt: skip
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(_Stuck, StopCriterionReached):
            warnings.simplefilter("ignore")  # failures cost the largest float, on which numeric strategies overflow
            self._tune(space, runner, tuning_options)
        if (
            runner.stopped is not None
        ):  # in Kernel Tuner: the strategy has caught the end of the budget, and so must end
            raise runner.stopped

    def _strategy_options(self, space: _Space) -> dict[str, Any]:
        """The options asked for, over those that keep a strategy from stopping early or overrunning a small space."""
        options: dict[str, Any] = {}
        if self.name in _STOPS_AFTER_100:
            options["max_fevals"] = space.size
        if self.name == "genetic_algorithm":
            options["popsize"] = max(2, min(26, space.size // 2))
        elif self.name == "firefly_algorithm":
            options["popsize"] = min(20, space.size)
        elif self.name == "adaptive_tabu_greywolf":
            options["pack_size"] = min(8, space.size)
        elif self.name == "diff_evo" and 16 * len(space.get_true_tunable_params()) > space.size // 2:
            options |= {"popsize": max(4, space.size // 2), "popsize_times_dimensions": False}
        return {**options, **self.options}


class _Stuck(Exception):
    """A strategy went on and on without evaluating anything."""


class _Runner:
    """Kernel Tuner's runner and budget, over `func`."""

    def __init__(self, func: Callable[[Sequence[Any]], float], searchspace: Any) -> None:
        self.func, self.names = func, list(searchspace.tune_params)
        self.seen: set[tuple[Any, ...]] = set()
        self.best: tuple[Any, float] = (None, math.inf)
        self.idle = 0
        self.stopped: BaseException | None = None

    def cost(self, config: Sequence[Any]) -> float:
        """Evaluate one configuration."""
        try:
            value = float(self.func(tuple(config)))
        except BaseException as stop:
            self.stopped = stop
            raise
        self.idle = 0 if tuple(config) not in self.seen else self.idle + 1
        self.seen.add(tuple(config))
        if value < self.best[1] or self.best[0] is None:
            self.best = (tuple(config), value)
        return value

    def looked(self) -> None:
        """The strategy looked something up in the search space."""
        self.idle += 1
        if self.idle > _IDLE:
            raise _Stuck

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


class _Space:
    """A search space, ours or Kernel Tuner's, with what a strategy lacks or gets wrong on it."""

    def __init__(self, searchspace: Any, runner: _Runner, never_isolated: bool) -> None:
        self._inner, self._runner, self._never_isolated = searchspace, runner, never_isolated
        self._indices: np.ndarray | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def is_param_config_valid(self, param_config: Sequence[Any]) -> bool:
        self._runner.looked()
        return self._inner.is_param_config_valid(tuple(param_config))

    def get_random_sample(self, num_samples: int) -> list[tuple[Any, ...]]:
        self._runner.looked()
        return self._inner.get_random_sample(min(num_samples, self._inner.size))

    def get_random_neighbor(
        self, param_config: Sequence[Any], neighbor_method: str | None = None, **options: Any
    ) -> Any:
        self._runner.looked()
        if neighbor_method == "closest-param-indices":
            return self._closest(param_config)
        found = self._inner.get_random_neighbor(tuple(param_config), neighbor_method=neighbor_method, **options)
        return self._inner.get_random_sample(1)[0] if found is None and self._never_isolated else found

    def get_LHS_sample(self, num_samples: int) -> list[tuple[Any, ...]]:
        """As many different configurations as asked for, near a Latin hypercube drawn from the global generator."""
        indices, count = self._table(), min(num_samples, self._inner.size)
        levels = indices.max(axis=0)
        strata = np.stack([np.random.permutation(count) for _ in levels], axis=1)  # noqa: NPY002 - what is seeded for strategies
        points = (strata + np.random.random(strata.shape)) / count * (levels + 1) - 0.5  # noqa: NPY002
        rows = dict.fromkeys(int(np.abs(indices - point).sum(axis=1).argmin()) for point in points)
        rest = (row for row in np.random.permutation(len(indices)).tolist() if row not in rows)  # noqa: NPY002
        chosen = [*rows, *(row for row, _ in zip(rest, range(count - len(rows)), strict=False))]
        return [self._inner.list[row] for row in chosen]

    def _closest(self, param_config: Sequence[Any]) -> tuple[Any, ...]:
        """A valid configuration with the smallest sum of differences of value indices, at random among equals."""
        indices = self._table()
        distance = np.abs(indices - np.array(self._inner.get_param_indices(tuple(param_config)))).sum(axis=1)
        return self._inner.list[int(np.random.choice(np.flatnonzero(distance == distance.min())))]  # noqa: NPY002

    def _table(self) -> np.ndarray:
        if self._indices is None:
            self._indices = np.array(self._inner.get_list_param_indices_numpy(), dtype=np.int64)
        return self._indices


def _module(name: str) -> Any:
    from kernel_tuner import interface

    return importlib.import_module(interface._STRATEGY_IMPORTS[name])


def as_kernel_tuner_strategy(optimizer: Any, **options: Any) -> Any:
    """What `kernel_tuner.tune_kernel(strategy=...)` takes, for an optimizer of ours.

    Args:
        optimizer: a name or a file as in `evotune.optimizers`, made with `options`; or an optimizer itself.

    Raises:
        UserError: Kernel Tuner is missing, or there is no optimizer of that name.
    """
    if isinstance(optimizer, str):
        from .optimizers import provider

        optimizer = provider.make(optimizer, **options)()
    try:
        from kernel_tuner.strategies.wrapper import OptAlgWrapper
    except ImportError as error:
        raise UserError("Kernel Tuner is not installed: pip install 'metaopt-toolkit[tune]'") from error
    return OptAlgWrapper(_unsnapped(optimizer))


def _unsnapped(optimizer: Any) -> Any:
    """An optimizer with the attribute by which Kernel Tuner knows that configurations are to be taken as they are."""
    if not hasattr(optimizer, "costfunc_kwargs"):
        try:
            optimizer.costfunc_kwargs = {"scaling": False, "snap": False}
        except AttributeError:
            return _Wrapped(optimizer)
    return optimizer


class _Wrapped:
    """An optimizer that takes no attributes."""

    def __init__(self, optimizer: Callable[[Any, Any], Any]) -> None:
        self.optimizer, self.costfunc_kwargs = optimizer, {"scaling": False, "snap": False}

    def __call__(self, func: Any, searchspace: Any) -> Any:
        return self.optimizer(func, searchspace)
