"""The small network every learned optimizer ends in, as plain tensors.

A frozen dataclass of weights rather than an `nn.Module`: an optimizer's math function takes it as an argument, so
meta-training differentiates it, `vmap` maps over it, and a step folds scales into a copy of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MLP:
    """ReLU network on feature-major input; weights are (out, in) as in torch, biases (out)."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            if w.ndim != 2 or b.shape != w.shape[:1]:
                raise ValueError(f"layer {i} has a weight {tuple(w.shape)} and a bias {tuple(b.shape)}")
            if i and w.shape[1] != self.weights[i - 1].shape[0]:
                raise ValueError(
                    f"layer {i} takes {w.shape[1]} inputs, layer {i - 1} gives {self.weights[i - 1].shape[0]}"
                )

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden widths, outputs: (39, 32, 32, 2) for the published small_fc network."""
        return (self.weights[0].shape[1], *(w.shape[0] for w in self.weights))

    def __call__(self, x: Tensor) -> Tensor:
        """(in, n) -> (out, n)."""
        last = len(self.weights) - 1
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = w @ x + b[:, None]
            x = x.relu() if i < last else x
        return x

    def to(self, device: torch.device | str, dtype: torch.dtype) -> MLP:
        return MLP(tuple(w.to(device, dtype) for w in self.weights), tuple(b.to(device, dtype) for b in self.biases))


def random_mlp(widths: Sequence[int], generator: torch.Generator) -> MLP:
    """Haiku's default initialisation: weights truncated normal with deviation 1 / sqrt(fan in), biases zero."""
    weights = []
    for fan_in, fan_out in itertools.pairwise(widths):
        w = torch.empty(fan_out, fan_in)
        std = 1 / math.sqrt(fan_in)
        torch.nn.init.trunc_normal_(w, 0.0, std, -2 * std, 2 * std, generator=generator)
        weights.append(w)
    return MLP(tuple(weights), tuple(torch.zeros(n) for n in widths[1:]))
