"""Meta-weights as one flat vector and back, and the vector that meta-training starts from."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from ..models.mlp import MLP
from ..models.small_fc import UNSCALED, SmallFCWeights, StepScales
from .batched import INPUTS, OFFSETS, OUTPUTS, split

ADAM_CHANNEL = 6  # m_0 / sqrt(v), which N brings to a root mean square of one
GAIN = 0.3  # of the direction: steps of 0.3 x STEP_MULT = 3e-3 in root mean square
QUIET = 0.1  # of Haiku's deviation, for what else reaches the outputs


def like_adam(seed: int, hidden: tuple[int, ...] = (32, 32)) -> Tensor:
    """A network whose direction is Adam's, and which can learn the rest: (D,).

    A pair of ReLUs carries x = m_0 / sqrt(v) through: relu(x) - relu(-x) = x. The other units start as Haiku's would, with
    a tenth of the weight on the outputs. Against a random start this saves the minutes that finding the gradient's sign takes.
    """
    if min(hidden) < 3:
        raise ValueError(
            f"hidden={hidden}: two units carry Adam's direction, so at least three are needed in each layer"
        )
    weights = SmallFCWeights.random(seed, hidden).mlp.weights
    first, *middle, last = [w.clone() for w in weights]
    first[:2] = 0
    first[0, ADAM_CHANNEL], first[1, ADAM_CHANNEL] = 1, -1
    for w in middle:
        w[:2] = 0
        w[0, 0] = w[1, 1] = 1
    last *= QUIET
    last[0, :2] = torch.tensor([GAIN, -GAIN])
    last[1, :2] = 0
    return flatten(SmallFCWeights(MLP((first, *middle, last), tuple(torch.zeros(len(w)) for w in weights)),
                                  torch.zeros(3), torch.zeros(1), torch.zeros(3)))  # fmt: skip


def flatten(weights: SmallFCWeights) -> Tensor:
    """(D,) float32: each layer's weight and bias, then the offsets of momentum, rms and adafactor."""
    layers = zip(weights.mlp.weights, weights.mlp.biases, strict=True)
    pieces = [x.reshape(-1) for layer in layers for x in layer]
    return torch.cat([*pieces, weights.momentum_offsets, weights.rms_offsets, weights.adafactor_offsets]).float()


def unflatten(theta: Tensor, hidden: tuple[int, ...] = (32, 32), scales: StepScales = UNSCALED) -> SmallFCWeights:
    """The inverse of `flatten`; `scales` are those that they were trained with.

    Raises:
        ValueError: the length is another network's.
    """
    widths = (INPUTS, *hidden, OUTPUTS)
    size = sum((a + 1) * b for a, b in itertools.pairwise(widths)) + OFFSETS
    if theta.shape != (size,):
        raise ValueError(f"{theta.numel()} meta-weights do not fit a network of widths {widths}, which has {size}")
    weights, biases, offsets = split(theta[None], hidden)
    mlp = MLP(tuple(w[0].clone() for w in weights), tuple(b[0].clone() for b in biases))
    o = offsets[0].clone()
    return SmallFCWeights(mlp, o[:3], o[3:4], o[4:], scales)


def blended(theta: Tensor, start: Tensor, share: float) -> Tensor:
    """Meta-weights part of the way from where meta-training began: start + share (theta - start), all (D,).

    Between a start that trains everything slowly and an end that trains what it was trained on well lies one that keeps most of
    both (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022).
    """
    return start + share * (theta - start)
