"""What is under test, and the tools that the checks share."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..models import VeLOWeights
from ..registry import OPTIMIZERS

SHAPES = [(), (1,), (7,), (1, 1), (5, 4), (6, 6), (0, 3), (4, 3, 3, 3), (2, 3, 2, 2, 2)]


@dataclass(frozen=True)
class Subject:
    """An optimizer under test. `make(params, **options)` must accept lr, weight_decay and maximize."""

    name: str
    make: Callable[..., torch.optim.Optimizer]
    bytes_per_element: float = 16.0  # state of a large matrix, all told
    takes_loss: bool = False


def _maker(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Small random meta-weights; MuLO's width scaling applies to its weight decay too, so it is left to its own tests."""
    special: dict[str, dict[str, Any]] = {
        "velo": {"weights": VeLOWeights.random(0, width=8, bank=4), "num_steps": 100},
        "mulo": {"role": "other"},
    }
    own = {"weights": "random:0", "weight_decay": 0.0, **special.get(name, {})}

    def make(params: Any, **options: Any) -> torch.optim.Optimizer:
        return OPTIMIZERS[name](params, **{**own, **options})

    return make


def registry() -> list[Subject]:
    """Every optimizer of ours, with small random meta-weights."""
    return [Subject(name, _maker(name), takes_loss=name == "velo") for name in OPTIMIZERS]


def parameters(
    shapes: list[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(s, generator=g).to(dtype)) for s in shapes]


def give_gradients(params: list[nn.Parameter], t: int = 0, sign: float = 1.0) -> None:
    """Seeded gradients with uneven rows, of the parameter's type and strides."""
    g = torch.Generator().manual_seed(1000 + t)
    for p in params:
        x = torch.randn(p.shape, generator=g) * torch.rand(p.shape[-1:], generator=g) * sign
        p.grad = torch.empty_like(p).copy_(x)


def step(s: Subject, optimizer: Any, loss: float | Tensor = 1.0) -> Any:
    return optimizer.step(loss=loss) if s.takes_loss else optimizer.step()


def run(
    s: Subject, params: list[nn.Parameter], steps: int = 3, start: int = 0, optimizer: Any = None, **options: Any
) -> Any:
    optimizer = s.make(params, **{"lr": 0.1, **options}) if optimizer is None else optimizer
    for t in range(start, start + steps):
        give_gradients(params, t)
        step(s, optimizer)
    return optimizer


def equal(a: list[nn.Parameter], b: list[nn.Parameter]) -> bool:
    """The same bits."""
    return all(torch.equal(x.detach(), y.detach()) for x, y in zip(a, b, strict=True))


def snapshot(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Copies of all parameters and all tensors of the state, in order."""
    params = [p for g in optimizer.param_groups for p in g["params"]]
    states = [x for p in params for x in optimizer.state[p].values() if isinstance(x, Tensor)]
    return [x.detach().clone() for x in (*params, *states)]


def through_disk(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, dict):
        for y in x.values():
            yield from leaves(y)
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from leaves(y)
    else:
        yield x
