"""AdaptiveTabuGreyWolf as its paper describes it: a pack led by its three best, a tabu list, a schedule by the spent budget.

Every wolf that does not lead recombines the values of the three leaders and its own, is shaken into a neighbourhood with a
probability that grows with stagnation, and replaces itself by simulated annealing. The neighbourhood narrows halfway.

What differs from Kernel Tuner's program of this name: temperature and neighbourhood follow the spent budget, where that one
counts evaluations up to 5,000 and so never cools on a budget of a few hundred; the temperature is in units of the spread of
the costs seen, not of the objective, so that a kernel in microseconds and one in seconds are annealed alike; a stagnation
restart keeps the best; a configuration that was measured is not measured again while unmeasured neighbours exist. Spaces
smaller than the pack work. `faults=True` restores the schedule by evaluations.

When to use it: as a yardstick from the literature. `gp_general` is better in every regime that was measured.

Source: "Automated Algorithm Design for Auto-Tuning Optimizers" (2025), AdaptiveTabuGreyWolf.
"""

import math
import random
from collections import deque
from typing import Any

import numpy as np

try:
    from kernel_tuner.strategies.wrapper import OptAlg
except ImportError:  # the program also runs where Kernel Tuner is not installed

    class OptAlg:  # type: ignore[no-redef]
        def __init__(self) -> None:
            self.costfunc_kwargs = {"scaling": False, "snap": False}


PROVENANCE = {
    "kind": "paper",
    "by": "the paper's AdaptiveTabuGreyWolf, written anew by the metaopt-toolkit authors with its faults fixed",
    "source": "Automated Algorithm Design for Auto-Tuning Optimizers, 2025",
}
SCORES = {  # P under `direct`, its 95 % interval, runs a space: benchmarks/zoo/measure.py
    "train": (0.554, 0.467, 0.629, 25),
    "test": (0.426, 0.337, 0.511, 25),
    "all 12": (0.490, 0.427, 0.548, 25),
    "all 12 without conv. W6600": (0.521, 0.464, 0.573, 25),
}

FAILED = 1e300  # Kernel Tuner answers a failure with the largest float, others with infinity


class AdaptiveTabuGreyWolfFixed(OptAlg):
    """Grey wolves with a tabu list.

    Args:
        pack: number of wolves.
        shake, jump: base probability of a move into a neighbourhood, and of a random value instead of it.
        patience: rounds without a new best before part of the pack is drawn anew.
        restart: that part.
        heat, decay: temperature is heat * exp(-decay * spent), in units of the spread of the costs.
        faults: count evaluations up to 5,000 as the schedule, as Kernel Tuner's program does.
    """

    def __init__(
        self, pack: int = 8, shake: float = 0.2, jump: float = 0.15, patience: int = 80, restart: float = 0.3,
        heat: float = 1.0, decay: float = 5.0, faults: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.costfunc_kwargs = {"scaling": False, "snap": False}
        self.size, self.shake, self.jump, self.patience = pack, shake, jump, patience
        self.restart, self.heat, self.decay, self.faults = restart, heat, decay, faults

    def __call__(self, func: Any, searchspace: Any) -> tuple[Any, float]:
        self.func, self.space = func, searchspace
        self.known: dict[tuple, float] = {}
        self.configs = [tuple(config) for config in searchspace.list]
        self.valid = set(self.configs)
        self.tabu: deque[tuple] = deque(maxlen=3 * self.size)
        pack = [(c, self.measure(c)) for c in random.sample(self.configs, min(self.size, len(self.configs)))]
        best, stagnation = math.inf, 0
        while len(self.known) < len(self.configs):
            pack = self.round(sorted(pack, key=lambda wolf: wolf[1]), stagnation)
            pack.sort(key=lambda wolf: wolf[1])
            stagnation = 0 if pack[0][1] < best else stagnation + 1
            best = min(best, pack[0][1])
            if stagnation >= self.patience:
                kept = pack[: len(pack) - math.ceil(len(pack) * self.restart)]
                pack = kept + [(c, self.measure(c)) for c in (self.fresh() for _ in pack[len(kept) :])]
                stagnation = 0
        return min(self.known.items(), key=lambda item: item[1])

    def round(self, pack: list, stagnation: int) -> list:
        """One move of every wolf; the leaders stay where they are."""
        leaders = [config for config, _ in pack[:3]]
        spent = len(self.known) / 5000 if self.faults else self.func.budget_spent_fraction
        heat = self.heat * math.exp(-self.decay * spent)
        if stagnation and stagnation % max(1, self.patience // 2) == 0:
            heat += 0.2 * self.heat
        shaking = min(0.5, self.shake * (1 + stagnation / self.patience))
        moved = pack[:3]
        for config, cost in pack[3:]:
            child = self.unmeasured(self.child(config, leaders, shaking, spent))
            new = self.measure(child)
            moved.append((child, new) if self.accept(new - cost if cost < math.inf else -1.0, heat) else (config, cost))
        if len(pack) <= 3:  # in a space of three configurations or fewer nobody follows
            moved[-1] = (child := self.fresh(), self.measure(child))
        return moved

    def child(self, config: tuple, leaders: list, shaking: float, spent: float) -> tuple:
        """Recombination of the leaders and the wolf itself, sometimes shaken, always valid."""
        child = [random.choice(values) for values in zip(*leaders, config, strict=True)]
        if random.random() < shaking:
            if random.random() < self.jump:
                place = random.randrange(len(child))
                child[place] = random.choice(self.configs)[place]
            else:
                kind = "adjacent" if spent < 0.5 else "strictly-adjacent"
                near = self.space.get_neighbors(tuple(child), neighbor_method=kind)
                child = list(random.choice(near)) if len(near) else child
        return self.repaired(tuple(child))

    def repaired(self, config: tuple) -> tuple:
        """The configuration, or a valid neighbour, or a random one."""
        if config in self.valid:
            return config
        for kind in ("adjacent", "Hamming", "strictly-adjacent"):
            near = self.space.get_neighbors(config, neighbor_method=kind)
            if len(near):
                return tuple(random.choice(near))
        return random.choice(self.configs)

    def unmeasured(self, config: tuple) -> tuple:
        """The configuration, or if it is tabu or known, a neighbour that is not, or a fresh one."""
        if config not in self.known and config not in self.tabu:
            return config
        near = [tuple(n) for n in self.space.get_neighbors(config, neighbor_method="Hamming")]
        new = [n for n in near if n not in self.known]
        return random.choice(new) if new else self.fresh()

    def fresh(self) -> tuple:
        """A random configuration, not measured yet if one is left."""
        for _ in range(20):
            config = random.choice(self.configs)
            if config not in self.known:
                return config
        return random.choice([c for c in self.configs if c not in self.known] or self.configs)

    def measure(self, config: tuple) -> float:
        """Evaluate and remember."""
        if config not in self.known:
            cost = float(self.func(config))
            self.known[config] = cost if abs(cost) < FAILED else math.inf
        self.tabu.append(config)
        return self.known[config]

    def accept(self, change: float, heat: float) -> bool:
        """Simulated annealing in units of the spread of the costs."""
        if change <= 0:
            return True
        valid = np.sort([c for c in self.known.values() if c < math.inf])
        spread = float(valid[len(valid) // 2] - valid[0]) if len(valid) else 0.0
        return heat * spread > 0 and random.random() < math.exp(-change / (heat * spread))
