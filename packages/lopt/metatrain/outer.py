"""The outer optimizer: Adam on the meta-weights, cosine schedule, clipping at twice the running norm.

The running norm makes the bound follow the meta-gradient, whose size changes by orders over a meta-training. An estimate beyond
`wild` times the running norm is skipped: exact gradients of an unroll explode now and then (to 1e14, measured), and clipped
to an honest length they would still point nowhere. Each one lets the running norm grow a little, so that a growth that is
here to stay is followed. The running norm begins as the median of the first few estimates, and Adam sees estimates in units of
it: a run whose very first estimate had exploded (9,691 where 0.1 was usual) otherwise stood still for hundreds of steps, because
Adam's second moment remembered it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

REMEMBERED = 15  # estimates of a family
FIRST = 9  # estimates that the running norm begins with


@dataclass(frozen=True)
class Outer:
    """Adam's numbers: peak rate, betas, warm-up as a share of the run, and the rate at the end as a share of the peak."""

    lr: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.99)
    warmup: float = 0.01
    final: float = 0.03
    clip: float = 2.0  # times the running norm
    wild: float = 10.0  # times the running norm: skipped
    running: float = 0.95  # decay of the running norm
    average: float = 0.0  # decay of the average of the meta-weights, which is what snapshots hold; 0: the last ones

    def __post_init__(self) -> None:
        if not 0 <= self.average < 1:
            raise ValueError(f"average={self.average}: the decay of an average is at least 0 and below 1")

    def rate(self, progress: float) -> float:
        """Learning rate after a share `progress` of the run."""
        if progress < self.warmup:
            return self.lr * max(progress / self.warmup, 0.01)
        share = (min(progress, 1.0) - self.warmup) / (1 - self.warmup)
        return self.lr * (self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * share)))


class Gauge:
    """Estimates in units of what is usual for their family of tasks: the median norm of its last `REMEMBERED` estimates.

    Losses of digits fall by orders and those of text end at its entropy, so a plain mean of estimates would be about digits. An
    estimate's own norm would be no better a unit: it makes the noise at the end of a training as loud as its beginning.
    """

    def __init__(self, settings: Outer) -> None:
        self.settings = settings
        self.norms: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def scaled(self, estimate: Tensor, family: str) -> Tensor:
        """The estimate over the family's usual norm, `clip` at most; nothing where it is wild or no number."""
        norm = estimate.norm().item()
        if not math.isfinite(norm) or not norm:
            return torch.zeros_like(estimate)
        norms = self.norms[family]
        norms.append(norm)
        usual = statistics.median_low(norms)
        if len(norms) > 2 and norm > self.settings.wild * usual:
            return torch.zeros_like(estimate)
        return estimate / norm * min(self.settings.clip, norm / usual)

    def state_dict(self) -> dict[str, list[float]]:
        return {family: list(norms) for family, norms in self.norms.items()}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        for family, norms in state.items():
            self.norms[family].extend(norms)


class OuterAdam:
    """theta, what Adam remembers of it, and its running average."""

    def __init__(self, theta: Tensor, settings: Outer) -> None:
        self.theta, self.settings = theta.clone(), settings
        self.average = theta.clone()
        self.m, self.v = torch.zeros_like(theta), torch.zeros_like(theta)
        self.steps, self.norm = 0, 0.0
        self.first: list[float] = []  # norms of the first estimates

    def step(self, gradient: Tensor, progress: float) -> float:
        """One step in place; returns the norm of the gradient before clipping."""
        s, norm = self.settings, gradient.norm().item()
        beginning = len(self.first) < FIRST
        if beginning and math.isfinite(norm):
            self.first.append(norm)
            self.norm = statistics.median_low(self.first)
        if not math.isfinite(norm) or (len(self.first) > 2 and norm > s.wild * self.norm):
            self.norm *= 1 + (1 - s.running)
            return norm
        length = min(s.clip, norm / max(self.norm, 1e-30))  # in units of the running norm
        clipped = gradient / max(norm, 1e-30) * length
        if not beginning:
            self.norm *= s.running + (1 - s.running) * length
        self.steps += 1
        b1, b2 = s.betas
        self.m = b1 * self.m + (1 - b1) * clipped
        self.v = b2 * self.v + (1 - b2) * clipped**2
        direction = (self.m / (1 - b1**self.steps)) / ((self.v / (1 - b2**self.steps)).sqrt() + 1e-8)
        self.theta = self.theta - s.rate(progress) * direction
        decay = min(s.average, self.steps / (self.steps + 9))  # an average of few is not mostly of the start
        self.average = decay * self.average + (1 - decay) * self.theta
        return norm

    def state_dict(self) -> dict[str, Any]:
        return {
            "theta": self.theta,
            "average": self.average,
            "m": self.m,
            "v": self.v,
            "steps": self.steps,
            "norm": self.norm,
            "first": self.first,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.theta, self.average, self.m, self.v = state["theta"], state["average"], state["m"], state["v"]
        self.steps, self.norm, self.first = state["steps"], state["norm"], list(state["first"])
