"""Any shape, any block size, any layout: the step in blocks is the step of the formulas on the whole tensor."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lopt.features import SMALL_FC, VELO, blocks, factored_axes, init_accumulators, time_features
from lopt.models import SmallFCWeights, VeLOWeights
from lopt.optim.small_fc import small_fc_step
from lopt.optim.velo import mixed_networks, velo_step
from lopt.step.reference import Factors, Gradient, apply_, fold, measure_, scale_outputs, update_factors_

SMALL = SmallFCWeights.random(0)
BANK = VeLOWeights.random(0, width=8, bank=4)
shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def in_blocks(fs, p, g, a, mlp, decays, constant, axes, limit):
    """What the update functions do, with blocks far smaller than they take."""
    gradient = Gradient(g, p.dtype)
    factors = Factors(None, None) if axes is None else update_factors_(a, gradient, decays.adafactor, axes, limit)
    mean_square, kept = measure_(fs, p, gradient, a, factors, decays, limit)
    net = fold(fs, mlp, mean_square, constant, axes is not None)
    apply_(fs, p, gradient, a, factors, net, axes, kept, 1.0, False, limit)


def problem(shape, layout, seed):
    g = torch.Generator().manual_seed(seed)
    p, grads = torch.randn(shape, generator=g), torch.randn(3, *shape, generator=g)
    axes = factored_axes(shape, layout)
    return (
        p,
        grads * torch.rand(shape[-1:], generator=g),
        axes,
        lambda: init_accumulators(shape, axes, p.device, p.dtype),
    )


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(3, 40), st.sampled_from(["jax", "torch"]), st.integers(0, 99))
def test_small_fc(shape, limit, layout, seed):
    p, grads, axes, start = problem(shape, layout, seed)
    whole, a, b = p.clone(), start(), start()
    decays, mlp = SMALL.decays(), scale_outputs(SMALL.mlp, (1e-2, 1e-3))
    for t, g in enumerate(grads):
        whole, a = small_fc_step(whole, g, a, torch.tensor(t), SMALL.mlp, decays, axes)
        in_blocks(SMALL_FC, p, g, b, mlp, decays, time_features(torch.tensor(float(t))), axes, limit)
    torch.testing.assert_close(p, whole, rtol=0, atol=2e-6)
    for x, y in zip(a, b, strict=True):
        assert (x is None) == (y is None) and (x is None or torch.allclose(x, y, rtol=1e-5, atol=1e-8))


@settings(max_examples=15, deadline=None)
@given(shapes, st.integers(3, 40), st.integers(0, 99))
def test_velo(shape, limit, seed):
    p, grads, axes, start = problem(shape, "jax", seed)
    whole, a, b = p.clone(), start(), start()
    decays = SMALL.decays()
    controls = 0.05 * torch.randn(1, 4, generator=torch.Generator().manual_seed(seed))
    mlp = mixed_networks(BANK, controls, torch.ones(1))[0]
    for g in grads:
        scale = ((whole**2).mean() + 1e-9).sqrt() * 1e-3
        whole, a = velo_step(whole, g, a, scale_outputs(mlp, (1.0, 1e3)), torch.ones(()), axes, decays)
        in_blocks(VELO, p, g, b, scale_outputs(mlp, (scale, 1.0)), decays, None, axes, limit)
    torch.testing.assert_close(p, whole, rtol=1e-5, atol=2e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=5).map(tuple), st.integers(1, 50))
def test_blocks_tile(shape, limit):
    seen = torch.zeros(shape)
    for block in blocks(shape, limit):
        assert 0 < seen[block].numel() <= limit
        seen[block] += 1
    assert (seen == 1).all()
