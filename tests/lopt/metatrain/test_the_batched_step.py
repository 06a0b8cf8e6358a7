"""The step that meta-training takes for many particles at once is `small_fc_step`, on tensors of every rank."""

from __future__ import annotations

import pytest
import torch

from lopt.features import factored_axes, init_accumulators
from lopt.metatrain import batched, full
from lopt.metatrain.inner import Instances
from lopt.metatrain.layout import Layout
from lopt.metatrain.meta_weights import flatten, like_adam, unflatten
from lopt.metatrain.tasks import MLPTask, Task, TransformerTask
from lopt.models import SmallFCWeights
from lopt.models.small_fc import StepScales
from lopt.optim.mulo import MuLO
from lopt.optim.small_fc import SmallFCLOpt, small_fc_step

SHAPES = ((5, 7), (5,), (4, 4), (), (1, 1), (3,), (2, 3, 3, 3), (1,))
STEPS, N = 6, 3


def gradients(layout: Layout) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return [torch.randn(N, layout.size, generator=g) * 10.0 ** (-t) for t in range(STEPS)]


def random_theta(n: int) -> torch.Tensor:
    return 0.1 * torch.randn(n, batched.parameters_of((32, 32)), generator=torch.Generator().manual_seed(2))


def one_by_one(layout: Layout, start: torch.Tensor, thetas: torch.Tensor) -> torch.Tensor:
    """Each tensor of each particle by the pure function."""
    out = []
    for i, theta in enumerate(thetas):
        mlp, decays = full.weights_of(theta, (32, 32))
        p = [x[i] for x in layout.unpack(start)]
        a = [init_accumulators(x.shape, factored_axes(x.shape, "torch"), x.device, x.dtype) for x in p]
        for t, rows in enumerate(gradients(layout)):
            g = [x[i] for x in layout.unpack(rows)]
            for k, x in enumerate(p):
                axes = factored_axes(x.shape, "torch")
                p[k], a[k] = small_fc_step(x, g[k], a[k], torch.tensor(float(t)), mlp, decays, axes)
        out.append(layout.pack([x[None] for x in p]))
    return torch.cat(out)


def test_equals_the_pure_function_on_tensors_of_every_rank() -> None:
    layout, thetas = Layout(SHAPES), random_theta(N)
    start = torch.randn(N, layout.size, generator=torch.Generator().manual_seed(3))
    rows, state = start.clone(), batched.initial_state(layout, N)
    meta, scratch = batched.meta_batch(thetas), batched.Scratch(N, layout, (32, 32))
    for g in gradients(layout):
        batched.step_(rows, g, state, meta, layout, scratch)
    expected = one_by_one(layout, start, thetas)
    moved = (expected - start).abs().max()
    assert moved > 1e-3
    assert (rows - expected).abs().max() < 1e-4 * moved  # float32: features reach 1e4 before they are normalised


def test_the_differentiable_step_equals_it_too() -> None:
    layout, theta = Layout(SHAPES), random_theta(1)[0]
    start = torch.randn(N, layout.size, generator=torch.Generator().manual_seed(3))
    mlp, decays = full.weights_of(theta, (32, 32))
    rows, state = start, batched.initial_state(layout, N)
    for g in gradients(layout):
        rows, state = full.step(rows, g, state, mlp, decays, layout)
    expected = one_by_one(layout, start, theta.expand(N, -1))
    assert (rows - expected).abs().max() < 1e-4 * (expected - start).abs().max()


def test_the_optimizer_class_takes_the_same_steps() -> None:
    # What is meta-trained here is what `SmallFCLOpt` runs.
    layout, theta = Layout(SHAPES), random_theta(1)[0]
    start = torch.randn(1, layout.size, generator=torch.Generator().manual_seed(3))
    params = [torch.nn.Parameter(x[0].clone()) for x in layout.unpack(start)]
    optimizer = SmallFCLOpt(params, weights=unflatten(theta), backend="reference")
    rows, state = start.clone(), batched.initial_state(layout, 1)
    meta, scratch = batched.meta_batch(theta[None]), batched.Scratch(1, layout, (32, 32))
    for g in gradients(layout):
        for p, own in zip(params, layout.unpack(g[:1]), strict=True):
            p.grad = own[0].clone()
        optimizer.step()
        batched.step_(rows, g[:1], state, meta, layout, scratch)
    moved = (rows - start).abs().max()
    for p, own in zip(params, layout.unpack(rows), strict=True):
        assert (p.detach() - own[0]).abs().max() < 1e-4 * moved


@pytest.mark.parametrize("task", [TransformerTask(width=8, tied=True), TransformerTask(width=8), MLPTask(width=6)])
def test_mulo_takes_the_same_steps(task: Task) -> None:
    # Steps of hidden matrices are multiplied by 16 / fan_in, here by the task's word, there by the
    # groups'; those of vectors by a quarter in both; and all fall with t and follow the signal.
    scales = StepScales(16.0, 0.25, lr_decay_steps=2.0, by_signal=True)
    theta, generator = random_theta(1)[0], torch.Generator().manual_seed(3)
    instances = Instances(task, 1, generator)
    layout, start = instances.layout, instances.origin
    params = [torch.nn.Parameter(x[0].clone()) for x in layout.unpack(start)]
    roles = {True: "hidden", False: "other"}
    groups = [{"params": [p], "role": roles[h]} for p, h in zip(params, task.hidden, strict=True)]
    optimizer = MuLO(groups, weights=unflatten(theta, scales=scales), backend="reference")
    mlp, decays = full.weights_of(theta, (32, 32))
    rows, state, scale = start, batched.initial_state(layout, 1), instances.step_scale(scales)
    for _ in range(4):
        g = torch.randn(1, layout.size, generator=generator)
        for p, own in zip(params, layout.unpack(g), strict=True):
            p.grad = own[0].clone()
        optimizer.step()
        rows, state = full.step(rows, g, state, mlp, decays, layout, scales.after(state.t)[:, None] * scale, True)
    plain = [p for p, h in zip(params, task.hidden, strict=True) if not h]
    assert len(plain) < len(params) and instances.step_scale(StepScales()).eq(1).all()
    for p, own in zip(params, layout.unpack(rows), strict=True):
        assert (p.detach() - own[0]).abs().max() < 1e-4 * (rows - start).abs().max()


def test_layouts_are_undone() -> None:
    layout = Layout(SHAPES)
    tensors = [torch.randn(2, *shape) for shape in SHAPES]
    again = layout.unpack(layout.pack(tensors))
    assert all(torch.equal(a, b) for a, b in zip(tensors, again, strict=True))


def test_flat_meta_weights_are_undone() -> None:
    weights = SmallFCWeights.random(4)
    theta = flatten(weights)
    assert torch.equal(flatten(unflatten(theta)), theta)
    assert torch.equal(unflatten(theta).mlp.weights[1], weights.mlp.weights[1])


def test_the_start_is_adams_direction() -> None:
    # A long vector, so that normalising over it is a constant; Adam with beta1 0.9 and, as here, no bias correction.
    theta = like_adam(0)
    mlp, decays = full.weights_of(theta, (32, 32))
    p, m, v = torch.zeros(4000), torch.zeros(4000), torch.zeros(4000)
    a = init_accumulators(p.shape, None, p.device, p.dtype)
    g = torch.Generator().manual_seed(0)
    drift = torch.randn(4000, generator=g)
    for t in range(30):
        gradient = drift + torch.randn(4000, generator=g)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        q, a = small_fc_step(p, gradient, a, torch.tensor(float(t)), mlp, decays, None)
        step, p = p - q, q
    assert torch.corrcoef(torch.stack([step, m / v.sqrt()]))[0, 1] > 0.9
