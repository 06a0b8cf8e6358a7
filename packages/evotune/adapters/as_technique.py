"""Optimizers of ours as a pyATF search technique.

    space = SearchSpace(TP("x", Interval(1, 8)), TP("y", ...), enable_1d_access=True)
    technique = OptimizerTechnique("gp_general", space, evaluations=100)
    Tuner().search_space(space).search_technique(technique).tune(cost_function, Evaluations(100))

pyATF asks its technique for the next configuration and reports the cost; an optimizer of ours calls a function and waits for it.
So the optimizer runs in a thread of its own, of which one step at a time is let through.
"""

from __future__ import annotations

import math
import queue
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from metabench.errors import UserError
from metabench.replay import Func, Stop
from metabench.searchspace import Searchspace
from metabench.space import Space

from ..optimizers import provider

try:
    from pyatf.search_techniques.search_technique_1d import SearchTechnique1D
except ImportError as error:
    raise UserError("pyATF is not installed: pip install 'metaopt-toolkit[pyatf]'") from error


class OptimizerTechnique(SearchTechnique1D):
    """A search technique for pyATF's `Tuner`.

    The rules of asking hold here as in replay: a revisit is answered from memory, what is no configuration is answered with
    +inf, calls of any kind are capped at 10 n + 1,000, and the end is a `Stop`. When the optimizer has ended and pyATF goes on,
    it is given what was not measured yet, in random order; after that, everything again.

    Args:
        optimizer: a name or a file as in `evotune.optimizers`, or an optimizer itself.
        search_space: pyATF's, made with `enable_1d_access=True`.
        evaluations: how many there will be, from which the optimizer sees how much of its budget is spent; by default the whole
            space. What ends the tuning is pyATF's abort condition.
        seed: of the search space's random draws. Optimizers that draw from the global generators of `random` and `numpy.random`
            are seeded there.

    Raises:
        UserError: no such optimizer, or a search space that cannot be read by index.
    """

    def __init__(
        self, optimizer: Any, search_space: Any, evaluations: int | None = None, seed: int | None = None
    ) -> None:
        make = provider.make(optimizer) if isinstance(optimizer, str) else lambda: optimizer
        try:
            found = [search_space.get_configuration(i) for i in range(search_space.constrained_size)]
        except ValueError as error:
            raise UserError(f"pyATF's search space must be made with enable_1d_access=True: {error}") from error
        names = list(search_space.tp_names)
        configurations = [tuple(one[name] for name in names) for one in found]
        self._make: Callable[[], Any] = make
        self._space = Space.from_configurations(names, configurations)
        self._index = {configuration: i for i, configuration in enumerate(configurations)}
        self._evaluations, self._seed = evaluations or len(configurations), seed

    def initialize(self, search_space_size: int) -> None:
        """Start the optimizer."""
        self._asked: queue.SimpleQueue[int | BaseException | None] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._costs: dict[int, float] = {}
        self._left: list[int] = []
        self._calls, self._ended = 0, False
        self._thread = threading.Thread(target=self._run, name="optimizer", daemon=True)
        self._thread.start()

    def get_next_indices(self) -> set[int]:
        """The configuration that the optimizer asks for.

        Raises:
            Exception: what the optimizer raised.
        """
        if not self._ended:
            asked = self._asked.get()
            if isinstance(asked, int):
                return {asked}
            self._ended = True
            if asked is not None:
                raise asked
        if not self._left:
            self._left = [i for i in range(len(self._space)) if i not in self._costs] or list(range(len(self._space)))
            random.shuffle(self._left)
        return {self._left.pop()}

    def report_costs(self, costs: dict[int, float | None]) -> None:
        """What pyATF measured; None for a failure."""
        for index, cost in costs.items():
            self._costs[index] = math.inf if cost is None else float(cost)
            if not self._ended:
                self._told.put(self._costs[index])

    def finalize(self) -> None:
        """Stop the optimizer where it waits for a cost, or after the step that it computes."""
        self._ended = True
        self._told.put(None)
        self._thread.join(timeout=60)

    # -- the optimizer's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        outcome: BaseException | None = None
        try:
            self._make()(Func(self._ask, self._spent_fraction), Searchspace(self._space, self._seed))
        except Stop:
            pass
        except BaseException as raised:
            outcome = raised
        self._asked.put(outcome)

    def _ask(self, configuration: Sequence[Any]) -> float:
        """The cost of a configuration, measured by pyATF unless it is known."""
        if self._ended or len(self._costs) == len(self._space) or self._calls >= 10 * len(self._space) + 1_000:
            raise Stop
        self._calls += 1
        row = self._space.find(configuration)
        if row is None:
            return math.inf
        index = self._index[self._space[row]]
        if index not in self._costs:
            self._asked.put(index)
            if (cost := self._told.get()) is None:
                self._ended = True
                raise Stop
            return cost
        return self._costs[index]

    def _spent_fraction(self) -> float:
        return min(1.0, len(self._costs) / self._evaluations)
