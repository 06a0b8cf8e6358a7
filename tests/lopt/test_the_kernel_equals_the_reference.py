"""The C++ passes against plain PyTorch: hostile shapes, odd strides, half types, every kind of configuration.

Tolerance: 5e-6 of how far the tensor moved, and the last place of the largest parameter, which is how p is stored.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from lopt import SmallFCLOpt
from lopt.features import (
    SMALL_FC,
    VELO,
    Accumulators,
    Axes,
    col_factor,
    factored_axes,
    init_accumulators,
    row_factor,
)
from lopt.models.mlp import MLP
from lopt.step import cpu, plan
from lopt.step.plan import AREA
from lopt.step.reference import Factors, Gradient, apply_, fold, scale_outputs
from metabench import kernel as kernels

SHAPES = [(), (1,), (1, 1), (7,), (4099,), (13, 17), (1031, 3), (3, 1031), (64, 64), (2, 3, 5, 7, 3), (5, 5, 3, 3),
          (16, 24, 3, 3), (6, 40, 50), (40, 6, 50), (2, 700), (1, 5000), (5000, 1)]  # fmt: skip
# One of each value, in company that interacts: tail handling, both paths, both loop orders.
CONFIGS = [
    {"BLOCK": 32, "VEC": 16, "UNROLL": 2, "HIDDEN_TILE": 4, "FUSE_OUTPUT": 1, "LOOP_ORDER": 1},
    {"BLOCK": 128, "VEC": 4, "UNROLL": 4, "HIDDEN_TILE": 2, "FUSE_OUTPUT": 0, "LOOP_ORDER": 0},
    {"BLOCK": 256, "VEC": 8, "UNROLL": 1, "HIDDEN_TILE": 16, "FUSE_OUTPUT": 0, "LOOP_ORDER": 1},
]


def trajectory(make, backend, steps=4, **options):
    """Parameters after a few steps of seeded gradients, and how far they moved."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(p) for p in make()]
    before = [p.detach().clone().float() for p in params]
    optimizer = SmallFCLOpt(params, weights="random:3", step_mult=0.1, backend=backend, **options)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn_like(p) * torch.rand(p.shape[-1:] or (1,)).to(p.dtype).reshape(p.shape[-1:])
        optimizer.step()
    after = [p.detach().float() for p in params]
    return after, [(a - b).abs().max().item() for a, b in zip(after, before, strict=True)]


def assert_same(make, tolerance=5e-6, **options):
    config = options.pop("config", None)
    want, moved = trajectory(make, "reference", **options)
    have, _ = trajectory(make, "cpu", config=config, **options)
    for x, y, m in zip(want, have, moved, strict=True):
        allowed = tolerance * m + torch.finfo(torch.float32).eps * x.abs().max()
        assert m > 0 and (x - y).abs().max() <= allowed, tuple(x.shape)


def contiguous():
    return [torch.randn(s) for s in SHAPES]


def test_hostile_shapes():
    assert_same(contiguous)


@pytest.mark.parametrize("config", CONFIGS)
def test_configurations_differ_in_speed_only(config):
    assert_same(contiguous, config=config)


def test_a_tensor_of_many_tiles():
    assert_same(lambda: [torch.randn(700, 1024), torch.randn(300_001), torch.randn(3, 200_000)], steps=2)
    assert 3 * 200_000 > 300_001 > 4 * AREA


def test_odd_strides():
    def views():
        base = torch.randn(40, 60)
        return [base[::2, 1::3], base.T.clone().T, torch.randn(8, 4, 5, 6).to(memory_format=torch.channels_last)]

    assert_same(views)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    """Both round the same float32 value, except where it falls beside the middle of two half numbers."""
    step = torch.finfo(dtype).eps
    want, _ = trajectory(lambda: [torch.randn(33, 65, dtype=dtype)], "reference")
    have, _ = trajectory(lambda: [torch.randn(33, 65, dtype=dtype)], "cpu")
    assert (want[0] - have[0]).abs().max() <= step * want[0].abs().max()
    assert (want[0] != have[0]).float().mean() < 0.01


@pytest.mark.parametrize("after", [False, True])
def test_weight_decay_clipping_and_maximize(after):
    assert_same(contiguous, weight_decay=0.1, decay_after_step=after, max_grad_norm=0.5, maximize=True)


def test_another_width():
    from lopt.models.small_fc import SmallFCWeights

    weights = SmallFCWeights.random(1, (64, 64))
    for backend in ("reference", "cpu"):
        p = torch.nn.Parameter(torch.ones(9, 11))
        p.grad = torch.arange(99.0).reshape(9, 11)
        SmallFCLOpt([p], weights=weights, backend=backend).step()
        want = p.detach().clone() if backend == "reference" else want  # noqa: F821
    torch.testing.assert_close(p.detach(), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("fs", [SMALL_FC, VELO], ids=lambda fs: fs.name)
def test_the_numpy_reference_equals_lopts_step(fs):
    """What the tuner holds the kernel against is what the optimizer means."""
    module = kernels.find(cpu.KERNELS[fs.name]).reference()
    arguments, net, outs = module.inputs(size=[(24, 56), (56, 24), (40,), (8, 3, 5, 6)], seed=1), module.NETWORK, []
    for i, (view, parts) in enumerate(module.shared.tensors_of(arguments)):
        p, g, m, v, slow, fast = (torch.from_numpy(x) for x in parts)
        axes = (Axes(1, 3) if view.row_is_slow else Axes(3, 1)) if view.factored else None
        row, col = (slow, fast) if view.row_is_slow else (fast, slow)
        a = Accumulators(m, v, row, col, None) if view.factored else Accumulators(m, v, None, None, fast)
        factors = Factors(row_factor(row, axes), col_factor(col)) if axes is not None else Factors(None, None)
        _, step_scale, exp_mult, shrink, _, _ = arguments["rates"][i].tolist()
        own = arguments["network"][i] if net.own else arguments["network"]
        w1, w2, b2, w3, b3 = map(torch.from_numpy, module.shared.layers(net, own))
        mlp = MLP((w1.T, w2.T, w3), (torch.from_numpy(arguments["bias"][i]), b2, b3)).to("cpu", torch.float64)
        mean_square = torch.from_numpy(arguments["mean_square"][i]).double()
        folded = fold(fs, scale_outputs(mlp, (step_scale, exp_mult)), mean_square, None, view.factored)
        apply_(fs, p, Gradient(g, torch.float64), a, factors, folded, axes, None, shrink, False)
        outs.append(p.reshape(-1))
    want = torch.from_numpy(module.expected(arguments)["out"])
    torch.testing.assert_close(torch.cat(outs).float(), want, rtol=3e-7, atol=1e-8)


def test_the_plan_of_the_numpy_reference_is_lopts():
    module = kernels.find("lopt_small_fc_apply").reference()
    arguments, at = module.inputs(), 0
    tensors = [torch.empty(s, device="meta") for s in module.shared.SHAPES]
    made = plan.plan([plan.Form.of(x, x, x, factored_axes(x.shape, "jax")) for x in tensors])
    first = plan.FIELDS.index("slow_partial")
    assert torch.equal(made.tensors[:, 7:first], torch.from_numpy(arguments["tensors"][:, 7:first]))
    for x, row in zip(tensors, arguments["tensors"], strict=True):
        assert row[0] == row[1] == row[2] == row[4] == 4 * at and row[3] == 12 * at
        at += x.numel()
    assert len(arguments["p"]) == at and arguments["tiles"].shape[1] == len(plan.TILE_FIELDS)


def test_a_tuned_step_is_taken_once():
    """Choosing a configuration must not apply the update once per trial: p = 1, g = 1e-3, lr = 1e-3."""
    results = []
    for backend, config in (("reference", None), ("cpu", None), ("cpu", CONFIGS[0])):
        p = torch.nn.Parameter(torch.ones(5))
        p.grad = torch.full((5,), 1e-3)
        SmallFCLOpt([p], lr=1e-3, weights="random:0", backend=backend, config=config).step()
        results.append(p.detach().clone())
    for x in results[1:]:
        torch.testing.assert_close(x, results[0], rtol=0, atol=6e-8)


def test_an_unknown_parameter_is_named():
    p = torch.nn.Parameter(torch.ones(5))
    p.grad = torch.ones(5)
    with pytest.raises(ValueError, match="no parameter BLOK; it has BLOCK"):
        SmallFCLOpt([p], weights="random:0", backend="cpu", config={"BLOK": 64}).step()


def test_the_operators_are_well_formed():
    """Schema, fake kernels, and what a compiled graph makes of the tensors that they change."""
    handle = cpu.library(SMALL_FC, 32, ())
    params = [torch.randn(6, 8), torch.randn(5)]
    accs = [init_accumulators(p.shape, factored_axes(p.shape), p.device, p.dtype) for p in params]
    grads = [torch.randn_like(p) for p in params]
    factors = [x for a in accs for x in (a.row, a.col, a.diag) if x is not None]
    rates = torch.tensor([[1, 1e-2, 1e-3, 1, 0, 1]]).repeat(2, 1)
    common = (params, grads, [a.m for a in accs], [a.v for a in accs], factors, rates)
    rule = ([0, 1, -1, -1], float("inf"), False, handle)
    torch.library.opcheck(torch.ops.lopt.measure_.default, (*common, torch.full((7,), 0.9), *rule))
    network = torch.randn(28 * 32 + 1024 + 32 + 64 + 2)
    torch.library.opcheck(
        torch.ops.lopt.apply_.default, (*common, torch.rand(2, 28), torch.randn(2, 32), network, *rule)
    )


def test_every_axis_order_finds_its_row_and_column():
    """The factored axes at every place of a 4-D tensor: a wrong index would show in one of these."""
    assert_same(lambda: [torch.randn(s) for s in itertools.permutations((2, 3, 19, 23))], steps=2)
