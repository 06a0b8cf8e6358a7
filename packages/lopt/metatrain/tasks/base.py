"""What a task is to meta-training: shapes, a start, data, and the loss of one network as a plain function.

Everything random is drawn for `n` instances at once, with a leading axis, from a generator handed in. A family writes `loss`,
of a single network, as one would write it down, which `torch.func.vmap` maps over particles; or `losses`, of many at once, where
the mapping costs a good part of the loss. The fields of a task are plain numbers and words, so a task is a line of JSON.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

Data = dict[str, Tensor]
ACTIVATIONS = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


@dataclass(frozen=True)
class Task:
    """Base of the families; fields that all of them have.

    Attributes:
        batch: examples of an inner step.
        loss_scale: the loss is multiplied by it, which a learned optimizer should not mind.
        scale: reparametrisation: a network with tensors scale * q, trained in q, that starts where it would have. Above 1
            its elements are smaller and want smaller steps, as those of wider networks do.
        tensor_spread: each tensor's own factor besides, log-normal with this deviation.
    """

    batch: int = 32
    loss_scale: float = 1.0
    scale: float = 1.0
    tensor_spread: float = 0.0

    family: ClassVar[str]

    @classmethod
    def draw(cls, rng: random.Random) -> Task:
        """A random task of the family."""
        raise NotImplementedError

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of one network's tensors."""
        raise NotImplementedError

    @property
    def hidden(self) -> tuple[bool, ...]:
        """Whether MuLO scales a tensor's steps by its fan-in: matrices, but the first, which reads the data."""
        first = next(i for i, shape in enumerate(self.shapes) if len(shape) > 1)
        return tuple(len(shape) > 1 and i != first for i, shape in enumerate(self.shapes))

    def start(self, n: int, generator: torch.Generator) -> list[Tensor]:
        """Initial tensors of n networks, (n, *shape) each."""
        raise NotImplementedError

    def data(self, n: int, generator: torch.Generator) -> Data:
        """Data of n instances, tensors (n, ...): what one instance is trained on for all its life."""
        raise NotImplementedError

    def next_batch(self, data: Data, generator: torch.Generator) -> tuple[Tensor, ...]:
        """An inner step's examples of every instance, (n, batch, ...) each."""
        raise NotImplementedError

    def loss(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        """() mean loss of one network on one batch."""
        if type(self).losses is Task.losses:
            raise NotImplementedError
        return self.losses([x[None] for x in tensors], *(x[None] for x in batch))[0]

    def losses(self, tensors: list[Tensor], *batch: Tensor) -> Tensor:
        """(n,) losses of n networks, tensors (n, *shape), each on its own examples."""
        return torch.func.vmap(lambda own, *examples: self.loss(own, *examples))(tensors, *batch)

    def as_json(self) -> dict[str, Any]:
        """The inverse of `task_from_json`."""
        return {"family": self.family, **asdict(self)}


def disguise(rng: random.Random) -> dict[str, float]:
    """Fields for a random reparametrisation and loss scale: half of the tasks have none."""
    if rng.random() < 0.5:
        return {}
    return {
        "loss_scale": round(log_uniform(rng, 0.5, 2.0), 3),
        "scale": round(log_uniform(rng, 0.5, 4.0), 3),
        "tensor_spread": round(rng.uniform(0.0, 0.5), 3),
    }


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    """Between low and high, uniform in the logarithm."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def dense(n: int, fan_out: int, fan_in: int, generator: torch.Generator, gain: float = 1.0) -> Tensor:
    """(n, fan_out, fan_in), normal with deviation gain / sqrt(fan_in)."""
    return torch.randn(n, fan_out, fan_in, generator=generator) * (gain / math.sqrt(fan_in))


def linear(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """x (n, ..., in) by w (n, out, in), plus b (n, out): (n, ..., out), one product for each of n networks."""
    flat = x.flatten(1, -2)
    y = flat @ w.mT if b is None else torch.baddbmm(b[:, None], flat, w.mT)
    return y.unflatten(1, x.shape[1:-1])


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Examples (n, batch, ...) of data (n, examples, ...) by index (n, batch)."""
    return x[torch.arange(len(x))[:, None], index]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """() mean over examples; logits (..., classes), labels (...)."""
    return cross_entropies(logits, labels).mean()


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """(...) of each example; logits (..., classes), labels (...).

    One-hot, because under vmap a gather is a slow loop; no `log_softmax`, for the reason that `softmax` gives.
    """
    hot = torch.nn.functional.one_hot(labels, logits.shape[-1]).to(logits.dtype)
    z = logits - logits.detach().amax(-1, keepdim=True)
    return z.exp().sum(-1).log() - (hot * z).sum(-1)


def softmax(x: Tensor) -> Tensor:
    """Over the last axis; torch's own takes 20 to 36 ns an element where that axis is shorter than a vector register."""
    y = (x - x.detach().amax(-1, keepdim=True)).exp()
    return y / y.sum(-1, keepdim=True)
