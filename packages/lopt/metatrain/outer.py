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
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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

    def rate(self, progress: float) -> float:
        """Learning rate after a share `progress` of the run."""
        if progress < self.warmup:
            return self.lr * max(progress / self.warmup, 0.01)
        share = (min(progress, 1.0) - self.warmup) / (1 - self.warmup)
        return self.lr * (self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * share)))


class OuterAdam:
    """theta and what Adam remembers of it."""

    def __init__(self, theta: Tensor, settings: Outer) -> None:
        self.theta, self.settings = theta.clone(), settings
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
        return norm

    def state_dict(self) -> dict[str, Any]:
        return {
            "theta": self.theta,
            "m": self.m,
            "v": self.v,
            "steps": self.steps,
            "norm": self.norm,
            "first": self.first,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.theta, self.m, self.v = state["theta"], state["m"], state["v"]
        self.steps, self.norm, self.first = state["steps"], state["norm"], list(state["first"])
