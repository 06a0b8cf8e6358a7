"""Kernel Tuner's strategies as optimizers of ours.

Faults of Kernel Tuner 1.5.0's strategies that are kept from users here, each measured on its `OptAlgWrapper` and
simulation mode:
- random_sample draws a tenth of the space; mls, greedy_mls and greedy_ils stop after 100 evaluations under
  a time budget.
- genetic_algorithm shrinks its population to 2 where the space has fewer than 52 configurations; diff_evo,
  firefly_algorithm and adaptive_tabu_greywolf index past the end of a population that is larger than the space.
- diff_evo's first population comes from an unseeded generator.
- greedy_ils raises on a configuration without neighbours; on spaces with few neighbours others loop for
  ever without evaluating anything.
- hybrid_vndx spends 3 ms an evaluation on finding nearest neighbours (see `nearest`).
What is kept: their algorithms and defaults, the wrong order of HybridVNDX's elites included.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metabench.errors import UserError, choose

from ._asker import Stuck
from ._runner import Runner
from ._space import LentSpace
from .nearest import with_quick_neighbors

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
        tune: Callable[[Any, Any, Any], Any] = module.tune
        self._tune = with_quick_neighbors(tune) if self.name == "hybrid_vndx" else tune

    def __call__(self, func: Callable[[Sequence[Any]], float], searchspace: Any) -> tuple[Any, float]:
        """Run until the budget ends or nothing is left; the best configuration and its cost."""
        runner = Runner(func, searchspace)
        if searchspace.size <= _SMALL:
            for config in searchspace.get_random_sample(searchspace.size):
                runner.cost(config)
            return runner.best
        space = LentSpace(searchspace, runner, never_isolated=self.name == "greedy_ils")
        fruitless = 0
        while len(runner.seen) < searchspace.size and fruitless < 3:
            before = len(runner.seen)
            self._run_once(space, runner)
            fruitless = 0 if len(runner.seen) > before else fruitless + 1
            if not self.restart:
                break
        return runner.best

    def _run_once(self, space: LentSpace, runner: Runner) -> None:
        from kernel_tuner.interface import Options
        from kernel_tuner.util import StopCriterionReached

        runner.idle = 0
        tuning_options = Options(
            strategy_options=Options(self._strategy_options(space)), objective=["cost"], objective_higher_is_better=[False],
            tune_params=space.tune_params, budget=runner, verbose=False, max_fevals=space.size,
        )  # fmt: skip
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(Stuck, StopCriterionReached):
            warnings.simplefilter("ignore")  # failures cost the largest float, on which numeric strategies overflow
            self._tune(space, runner, tuning_options)
        if (
            runner.stopped is not None
        ):  # in Kernel Tuner: the strategy has caught the end of the budget, and so must end
            raise runner.stopped

    def _strategy_options(self, space: LentSpace) -> dict[str, Any]:
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


def _module(name: str) -> Any:
    from kernel_tuner import interface

    return importlib.import_module(interface._STRATEGY_IMPORTS[name])
