"""pyATF's search techniques as optimizers of ours: "pyatf_de" and so on.

A technique walks the unit cube; what a point of it means is decided by pyATF's chain of trees, which `Tree` is over a space that
is enumerated already. (Kernel Tuner 1.5.0's own way to them, `pyatf_strategies`, fails with pyATF 0.0.13: it hands `TP` four
arguments, and `TP` takes three.)

What is kept from users here: a technique that has converged asks for what it knows for ever (differential evolution on
dedispersion, pattern search and Torczon's simplex on any space), and so is started again after a while. What is kept as it is:
`auc_bandit` takes the largest of (position, score) pairs where it means the largest score, and so chooses its techniques at
random, each a third of the time. pyATF's `exhaustive` is no search, and `opentuner` needs that package: they are left out.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np

from metabench.errors import UserError, choose

from ._asker import Asker, Stuck

PREFIX = "pyatf_"
_TECHNIQUES = {
    "pyatf_auc_bandit": "AUCBandit",
    "pyatf_de": "DifferentialEvolution",
    "pyatf_pattern_search": "PatternSearch",
    "pyatf_random": "Random",
    "pyatf_round_robin": "RoundRobin",
    "pyatf_simulated_annealing": "SimulatedAnnealing",
    "pyatf_torczon": "Torczon",
}
_MIXED = {  # of which techniques they are made: fresh ones, where pyATF's defaults are objects that all instances share
    "pyatf_auc_bandit": ("pyatf_simulated_annealing", "pyatf_pattern_search", "pyatf_torczon"),
    "pyatf_round_robin": ("pyatf_simulated_annealing", "pyatf_de", "pyatf_pattern_search", "pyatf_torczon"),
}
_OPTIONS = {"pyatf_auc_bandit": {"techniques", "c", "window_size"}, "pyatf_round_robin": {"techniques"}}
_PATIENCE = 100  # evaluations of what is known, in a row, after which a technique is started again
_IDLE = 20_000  # the same where it is not to be started again
_FRUITLESS = 20  # starts in a row that find nothing new, after which the run ends: nearly everything is known


def pyatf_names() -> list[str]:
    """pyATF's techniques, if it is installed."""
    return list(_TECHNIQUES) if importlib.util.find_spec("pyatf") else []


class PyATFTechnique:
    """A search technique of pyATF as an optimizer: `technique(func, searchspace)`.

    It draws from the global generator of `random`: seed this.

    Args:
        name: as in `pyatf_names()`.
        restart: whether a technique that has converged is started again. pyATF's own behaviour is not to: it then ends when
            it has asked 20,000 times in a row for what it knows.
        options: of auc_bandit, `c` and `window_size`; of auc_bandit and round_robin, `techniques`, a list of names.

    Raises:
        UserError: pyATF is not installed, there is no such technique (the allowed ones are listed), or it has no such option.
    """

    def __init__(self, name: str, restart: bool = True, **options: Any) -> None:
        if not (names := pyatf_names()):
            raise UserError("pyATF is not installed: pip install 'metaopt-toolkit[pyatf]'")
        self.name = choose(name, names, "pyATF technique")
        self.restart, self.options = restart, options
        allowed = _OPTIONS.get(name, set())
        if unknown := sorted(set(options) - allowed):
            has = f"it has {', '.join(sorted(allowed))}" if allowed else "it has none but restart"
            raise UserError(f"{name} has no option {', '.join(unknown)}; {has}")
        if "techniques" in options and not options["techniques"]:
            raise UserError(f"{name} needs at least one technique")
        for one in options.get("techniques", ()):
            choose(one, set(names) - set(_MIXED), f"technique to make {name} of")

    def __call__(self, func: Callable[[Sequence[Any]], float], searchspace: Any) -> tuple[Any, float]:
        """Run until the budget ends or nothing new is found; the best configuration and its cost."""
        asker = Asker(func, _PATIENCE if self.restart else _IDLE)
        tree = Tree(searchspace)
        fruitless = 0
        while len(asker.seen) < searchspace.size and fruitless < _FRUITLESS:
            before = len(asker.seen)
            self._run_once(tree, asker, searchspace.size)
            fruitless = 0 if len(asker.seen) > before else fruitless + 1
            if not self.restart:
                break
        return asker.best

    def _run_once(self, tree: Tree, asker: Asker, size: int) -> None:
        technique = self._fresh(self.name)
        technique.initialize(tree.dimensions)
        asker.idle = 0
        with contextlib.suppress(Stuck):
            while len(asker.seen) < size:
                asked = technique.get_next_coordinates()
                technique.report_costs({c: _reported(asker.cost(tree.configuration(c))) for c in asked})
                asker.check()

    def _fresh(self, name: str) -> Any:
        """A technique as pyATF has it, with nothing in it that others hold."""
        kind = getattr(importlib.import_module("pyatf.search_techniques"), _TECHNIQUES[name])
        if name not in _MIXED:
            return kind()
        options = dict(self.options)
        parts = options.pop("techniques", _MIXED[name])
        return kind([self._fresh(part) for part in parts], **options)


def _reported(cost: float) -> float | None:
    """A cost as pyATF takes it: None for a failure."""
    return cost if abs(cost) < sys.float_info.max else None


class Tree:
    """Where a point of the unit cube leads: pyATF's `SearchSpace.get_configuration`, over an enumerated space.

    Parameter by parameter, each coordinate divides what is left among the parameter's values, in proportion to how many
    configurations each of them leads to. Over the configurations in lexicographic order that is a bisection. pyATF splits the
    parameters into independent groups first; within a group the proportions are the same, so the walk is, too.
    """

    def __init__(self, searchspace: Any) -> None:
        indices = np.asarray(searchspace.get_list_param_indices_numpy())
        order = np.lexsort(indices.T[::-1])
        self.dimensions = indices.shape[1]
        self._columns = [column[order].tolist() for column in indices.T]
        self._configurations, self._order = searchspace.list, order

    def configuration(self, coordinates: Sequence[float]) -> tuple[Any, ...]:
        """The configuration at coordinates, each in (0, 1]."""
        low, high = 0, len(self._order)
        for column, coordinate in zip(self._columns, coordinates, strict=True):
            value = column[low + ceil(coordinate * (high - low)) - 1]
            low, high = bisect_left(column, value, low, high), bisect_right(column, value, low, high)
        return tuple(self._configurations[self._order[low]])
