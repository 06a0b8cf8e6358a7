"""Losses written for many networks at once, and quicker ways to well-known functions, are what they stand for."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lopt.metatrain.inner import Instances
from lopt.metatrain.tasks import MLPTask, Task
from lopt.metatrain.tasks.base import cross_entropy, softmax
from lopt.metatrain.tasks.conv import choice


def drawn(*shape: int) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
@pytest.mark.parametrize("source", ["teacher", "values"])
def test_fully_connected_networks(source: str, activation: str) -> None:
    task, generator = MLPTask(source=source, activation=activation, depth=2), torch.Generator().manual_seed(0)
    instances = Instances(task, 3, generator)
    tensors, batch = instances.layout.unpack(instances.origin), instances.next_batch(generator)
    own = task.losses(tensors, *batch)
    assert own.shape == (3,)
    assert torch.allclose(own, Task.losses(task, tensors, *batch), rtol=1e-6)
    one_by_one = [task.loss([x[i] for x in tensors], *(x[i] for x in batch)) for i in range(3)]
    assert torch.allclose(own, torch.stack(one_by_one), rtol=1e-6)


def test_patches_are_those_of_unfold() -> None:
    x = drawn(4, 3, 8, 8)
    ours = (x.flatten(2) @ choice(8)).unflatten(2, (9, 16)).flatten(1, 2)
    assert torch.equal(ours, F.unfold(x, 3, padding=1, stride=2))


@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_cross_entropy_and_softmax(size: float) -> None:
    x, y = size * drawn(5, 7, 10), torch.arange(35).reshape(5, 7) % 10
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    ours, torchs = cross_entropy(leaves[0], y), F.cross_entropy(leaves[1].flatten(0, 1), y.flatten())
    assert torch.allclose(ours, torchs, rtol=1e-6)
    gradients = [torch.autograd.grad(loss, leaf)[0] for loss, leaf in zip((ours, torchs), leaves, strict=True)]
    assert torch.allclose(*gradients, rtol=1e-5, atol=1e-8)
    assert torch.allclose(softmax(x), x.softmax(-1), rtol=1e-5, atol=1e-9)
    assert torch.autograd.gradcheck(softmax, x[0, :2].double().div(size).requires_grad_())
