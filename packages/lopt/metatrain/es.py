"""Gradients of an unrolled training by perturbation: truncated ES, persistent ES, noise-reuse ES.

Pairs of particles run with meta-weights theta + e and theta - e, e ~ N(0, sigma^2), on the same task with the same random
numbers. After a truncation of a few inner steps with mean losses L+ and L-, the estimate from each pair is

    g = x (L+ - L-) / (2 sigma^2)

and the estimators differ in e and x:

    es      a new e each truncation, x = e: blind to how early steps change late ones, so biased to what pays at once
    pes     a new e each truncation, x = the sum of all e since the particle began: unbiased, its variance grows with the
            number of truncations (Vicol, Metz, Sohl-Dickstein, ICML 2021)
    nres    one e for the particle's whole life, x = e: unbiased, and its variance does not grow (Li, Xu, Kveton, Bosch,
            Zaheer, NeurIPS 2023, "noise-reuse evolution strategies")
"""

from __future__ import annotations

import torch
from torch import Tensor

METHODS = ("es", "pes", "nres")


class Pairs:
    """The perturbations of `pairs` antithetic pairs of particles over `size` meta-weights, the last `free` of them or all."""

    def __init__(self, method: str, pairs: int, size: int, sigma: float, free: int | None = None) -> None:
        if method not in METHODS:
            raise ValueError(f"unknown estimator {method!r}; allowed: {', '.join(METHODS)}")
        if not sigma > 0:
            raise ValueError(f"sigma={sigma}: perturbations need a positive deviation")
        self.method, self.sigma = method, sigma
        self.fixed = 0 if free is None else size - free
        self.current = torch.zeros(pairs, size)  # e
        self.sum = torch.zeros(pairs, size)  # x
        self.fresh = torch.ones(pairs, dtype=torch.bool)  # pairs at the beginning of a life

    def perturb(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Meta-weights (2 pairs, size) of a truncation: all the plus particles, then all the minus particles."""
        drawn = self.sigma * torch.randn(self.current.shape, generator=generator)
        drawn[:, : self.fixed] = 0
        keep = ~self.fresh if self.method == "nres" else torch.zeros_like(self.fresh)
        self.current = torch.where(keep[:, None], self.current, drawn)
        carried = torch.where(self.fresh[:, None], torch.zeros_like(self.sum), self.sum)
        self.sum = carried + self.current if self.method == "pes" else self.current
        self.fresh = torch.zeros_like(self.fresh)
        return torch.cat([theta + self.current, theta - self.current])

    def gradient(self, losses: Tensor) -> Tensor:
        """(size,) estimate from the losses (2 pairs,) of the truncation that `perturb` began: the mean over pairs."""
        plus, minus = losses.chunk(2)
        return self.sum.T @ (plus - minus) / (2 * self.sigma**2 * len(plus))

    def restart(self, which: Tensor) -> None:
        """Pairs (pairs,) bool that begin a new life at the next truncation."""
        self.fresh = self.fresh | which

    def state_dict(self) -> dict[str, Tensor]:
        return {"current": self.current, "sum": self.sum, "fresh": self.fresh}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.current, self.sum, self.fresh = state["current"], state["sum"], state["fresh"]
