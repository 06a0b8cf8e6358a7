"""Fully connected networks of one to three hidden layers, on a teacher's classes or values, or on digits."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from . import data as made
from .base import ACTIVATIONS, Data, Task, cross_entropies, dense, disguise, linear, log_uniform, pick

EXAMPLES = 512


@dataclass(frozen=True)
class MLPTask(Task):
    """inputs -> width, `depth` times -> outputs."""

    inputs: int = 16
    width: int = 16
    depth: int = 1
    outputs: int = 10
    activation: str = "relu"
    source: str = "teacher"  # or "values", "digits"
    noise: float = 0.0
    examples: int = EXAMPLES  # of the teacher: a few are learned by heart, many are a stream whose gradients stay noisy

    family: ClassVar[str] = "mlp"

    @classmethod
    def draw(cls, rng: random.Random) -> Task:
        source = rng.choice(("teacher", "teacher", "digits", "digits", "values"))
        width = round(log_uniform(rng, 8, 32)) if rng.random() < 0.88 else round(log_uniform(rng, 32, 72))
        return cls(
            batch=rng.choice((16, 32, 64)), inputs=rng.choice((8, 12, 16, 24)), width=width, depth=rng.choice((1, 1, 2, 2, 3)),
            outputs=10 if source == "digits" else rng.choice((1, 2, 4)) if source == "values" else rng.choice((4, 6, 10)),
            activation=rng.choice(sorted(ACTIVATIONS)), source=source,
            noise=0.0 if source == "digits" else rng.choice((0.0, 0.1)),
            examples=rng.choice((EXAMPLES, 8192)), **disguise(rng))  # fmt: skip

    @property
    def widths(self) -> list[int]:
        return [self.inputs, *[self.width] * self.depth, self.outputs]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(shape for a, b in itertools.pairwise(self.widths) for shape in ((b, a), (b,)))

    def start(self, n: int, generator: torch.Generator) -> list[Tensor]:
        gain = 2**0.5 if self.activation == "relu" else 1.0
        pairs = itertools.pairwise(self.widths)
        return [x for a, b in pairs for x in (dense(n, b, a, generator, gain), torch.zeros(n, b))]

    def data(self, n: int, generator: torch.Generator) -> Data:
        if self.source == "digits":
            return made.rotated_digits(n, self.inputs, generator)
        make = made.teacher_classes if self.source == "teacher" else made.teacher_values
        return make(n, self.examples, self.inputs, self.outputs, self.noise, generator)

    def next_batch(self, data: Data, generator: torch.Generator) -> tuple[Tensor, ...]:
        index = torch.randint(data["x"].shape[1], (len(data["x"]), self.batch), generator=generator)
        return pick(data["x"], index), pick(data["y"], index)

    def losses(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        x, y = batch
        for i, (w, b) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
            x = linear(x, w, b)
            x = ACTIVATIONS[self.activation](x) if i < self.depth else x
        return (x - y).square().mean((1, 2)) if self.source == "values" else cross_entropies(x, y).mean(1)
