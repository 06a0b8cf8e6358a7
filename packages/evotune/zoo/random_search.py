"""Random search: every configuration once, in random order. The yardstick: its score is 0."""

import math
import random

try:
    from kernel_tuner.strategies.wrapper import OptAlg
except ImportError:  # the program also runs where Kernel Tuner is not installed

    class OptAlg:  # type: ignore[no-redef]
        def __init__(self) -> None:
            self.costfunc_kwargs = {"scaling": False, "snap": False}


PROVENANCE = {"kind": "designed", "by": "the metaopt-toolkit authors"}
SCORES: dict[str, tuple[float, float, float, int]] = {}


class RandomSearch(OptAlg):
    """Draws without replacement."""

    def __call__(self, func, searchspace):  # type: ignore[no-untyped-def]
        best, best_cost = None, math.inf
        for config in random.sample(searchspace.list, searchspace.size):
            cost = func(config)
            if best is None or cost < best_cost:
                best, best_cost = config, cost
        return best, best_cost
