"""Convolutional networks on 8 x 8 images: two 3 x 3 layers with stride two and a linear layer on the 2 x 2 places left."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from . import data as made
from .base import ACTIVATIONS, Data, Task, cross_entropy, dense, disguise, pick

SIDE = 8


@functools.cache
def choice(side: int) -> Tensor:
    """(side^2, 9 * places) zeros and ones that pick every patch of an image: `F.unfold` is a slow loop over images."""
    pixels = torch.eye(side * side).unflatten(1, (1, side, side))
    return F.unfold(pixels, 3, padding=1, stride=2).flatten(1)


def conv3x3(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """(batch, in, side, side) by (out, in, 3, 3), padded by one, stride two; a matrix product maps over networks cheaply."""
    half = x.shape[-1] // 2
    patches = x.flatten(2) @ choice(x.shape[-1])  # (batch, in, 9 * places)
    patches = patches.unflatten(2, (9, half * half)).flatten(1, 2)  # (batch, in * 9, places)
    return (w.flatten(1) @ patches + b[:, None]).unflatten(-1, (half, half))


@dataclass(frozen=True)
class ConvTask(Task):
    """1 -> width -> 2 width channels -> `classes`."""

    width: int = 6
    classes: int = 10
    activation: str = "relu"
    source: str = "digits"  # or "templates"
    noise: float = 0.5  # of the templates
    mislabelled: float = (
        0.1  # share of each batch with a random label: without it the loss goes to nothing, and ratios with it
    )

    family: ClassVar[str] = "conv"

    @classmethod
    def draw(cls, rng: random.Random) -> Task:
        source = rng.choice(("digits", "templates"))
        return cls(
            batch=16, width=rng.choice((4, 6, 8)), classes=10 if source == "digits" else rng.choice((4, 8)),
            activation=rng.choice(sorted(ACTIVATIONS)), source=source, noise=rng.choice((0.3, 1.0)),
            mislabelled=rng.choice((0.1, 0.3)), **disguise(rng))  # fmt: skip

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        c = self.width
        return (c, 1, 3, 3), (c,), (2 * c, c, 3, 3), (2 * c,), (self.classes, 8 * c), (self.classes,)

    def start(self, n: int, generator: torch.Generator) -> list[Tensor]:
        c, gain = self.width, 2**0.5 if self.activation == "relu" else 1.0
        first = dense(n, c, 9, generator, gain).unflatten(2, (1, 3, 3))
        second = dense(n, 2 * c, 9 * c, generator, gain).unflatten(2, (c, 3, 3))
        head = dense(n, self.classes, 8 * c, generator)
        return [first, torch.zeros(n, c), second, torch.zeros(n, 2 * c), head, torch.zeros(n, self.classes)]

    def data(self, n: int, generator: torch.Generator) -> Data:
        if self.source == "templates":
            return made.templates(n, 512, SIDE, self.classes, self.noise, generator)
        images, labels = made.digits()
        # Another sign and permutation of the classes for each instance, or all would be one data set.
        sign = torch.randint(2, (n, 1, 1, 1), generator=generator) * 2.0 - 1
        names = torch.rand(n, 10, generator=generator).argsort(1)
        return {"x": (images * sign)[:, :, None], "y": names[:, labels]}

    def next_batch(self, data: Data, generator: torch.Generator) -> tuple[Tensor, ...]:
        index = torch.randint(data["x"].shape[1], (len(data["x"]), self.batch), generator=generator)
        y, wrong = pick(data["y"], index), torch.rand(index.shape, generator=generator) < self.mislabelled
        return pick(data["x"], index), torch.where(wrong, torch.randint(self.classes, y.shape, generator=generator), y)

    def loss(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        x, y = batch
        w1, b1, w2, b2, w3, b3 = tensors
        act = ACTIVATIONS[self.activation]
        x = act(conv3x3(act(conv3x3(x, w1, b1)), w2, b2))  # (batch, 2 c, 2, 2)
        return cross_entropy(x.flatten(1) @ w3.mT + b3, y)
