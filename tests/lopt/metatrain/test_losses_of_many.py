"""Losses written for many networks at once, and quicker ways to well-known functions, are what they stand for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lopt.metatrain.inner import Instances
from lopt.metatrain.tasks import ConvTask, MLPTask, Task, TransformerTask
from lopt.metatrain.tasks.base import ACTIVATIONS, cross_entropy, softmax
from lopt.metatrain.tasks.conv import choice


def drawn(*shape: int) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def fully_connected(task: MLPTask, tensors: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The loss of one network, as one would write it down."""
    for i, (w, b) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        x = x @ w.mT + b
        x = ACTIVATIONS[task.activation](x) if i < task.depth else x
    return F.mse_loss(x, y) if task.source == "values" else F.cross_entropy(x, y)


def transformer(task: TransformerTask, tensors: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The same of a transformer: pre-norm blocks, causal attention, heads side by side."""
    d, rest = task.width, iter(tensors)
    token, place = next(rest), next(rest)
    x = token[x] + place
    for _ in range(task.depth):
        q, k, v = (F.layer_norm(x, (d,), next(rest), next(rest)) @ next(rest).mT).split(d, -1)
        heads = []
        for a, b, c in zip(*(z.split(d // task.heads, -1) for z in (q, k, v)), strict=True):
            scores = a @ b.mT / math.sqrt(d // task.heads)
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            heads.append(scores.masked_fill(future, -torch.inf).softmax(-1) @ c)
        x = x + torch.cat(heads, -1) @ next(rest).mT
        hidden = F.layer_norm(x, (d,), next(rest), next(rest)) @ next(rest).mT + next(rest)
        x = x + F.gelu(hidden) @ next(rest).mT + next(rest)
    logits = F.layer_norm(x, (d,), next(rest), next(rest)) @ (token if task.tied else next(rest)).mT
    assert not list(rest)
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())


TASKS = [
    *(MLPTask(source=s, activation=a, depth=2) for s in ("teacher", "values") for a in ("relu", "tanh", "gelu", "silu")),
    *(TransformerTask(width=8, depth=depth, heads=heads, tied=tied, init=0.5, batch=3)
      for depth, heads, tied in ((1, 1, False), (2, 2, True), (1, 4, False))),
]  # fmt: skip


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_losses_of_many_are_those_of_one_after_the_other(task: Task) -> None:
    generator = torch.Generator().manual_seed(0)
    instances = Instances(task, 3, generator)
    rows = instances.origin + 0.1 * torch.randn(instances.origin.shape, generator=generator)
    batch = instances.next_batch(generator)
    losses, gradients = instances.losses_and_gradients(rows, batch)
    one = fully_connected if isinstance(task, MLPTask) else transformer
    for i in range(3):
        leaf = rows[i : i + 1].clone().requires_grad_()
        loss = one(task, [x[0] for x in instances.layout.unpack(leaf)], *(x[i] for x in batch))
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert torch.allclose(losses[i], loss, rtol=2e-6)
        assert (gradients[i] - gradient[0]).abs().max() < 3e-6 * gradient.abs().max()
    single = task.loss([x[0] for x in instances.layout.unpack(rows)], *(x[0] for x in batch))
    assert single.shape == () and torch.allclose(single, losses[0], rtol=2e-6)


@pytest.mark.parametrize(
    "task", [MLPTask(scale=2.0, tensor_spread=0.5), TransformerTask(scale=3.0, tied=True), ConvTask(scale=0.5)]
)
def test_gradients_by_tensor_are_those_of_the_rows(task: Task) -> None:
    generator = torch.Generator().manual_seed(0)
    instances = Instances(task, 2, generator)
    rows, batch = instances.origin.repeat(2, 1), instances.next_batch(generator)
    losses, gradients = instances.losses_and_gradients(rows, batch)
    leaf = rows.clone().requires_grad_()
    expected = instances.losses(leaf, batch)
    assert torch.equal(losses, expected.detach())
    assert torch.equal(gradients, torch.autograd.grad(expected.sum(), leaf)[0])


def test_a_family_must_write_a_loss() -> None:
    with pytest.raises(NotImplementedError):
        Task().loss([])


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
