"""The C++ apply pass against plain PyTorch: hostile shapes, odd strides, half types, every kind of configuration.

Tolerance: 5e-6 of how far the tensor moved, and the last place of the largest parameter, which is how p is stored.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from lopt import SmallFCLOpt
from lopt.features import SMALL_FC, Accumulators
from lopt.models.mlp import MLP
from lopt.step import cpu
from lopt.step.reference import BLOCK, Factors, Folded, Gradient, apply_
from metabench import kernel as kernels

SHAPES = [(), (1,), (1, 1), (7,), (4099,), (13, 17), (1031, 3), (3, 1031), (64, 64), (2, 3, 5, 7, 3), (5, 5, 3, 3),
          (16, 24, 3, 3), (6, 40, 50), (40, 6, 50), (2, 700), (1, 5000), (5000, 1)]  # fmt: skip
# One of each value, in company that interacts: tail handling, both paths, both loop orders.
CONFIGS = [
    {"BLOCK": 32, "VEC": 16, "UNROLL": 2, "HIDDEN_TILE": 4, "SEPARABLE": 1, "FUSE_OUTPUT": 1, "LOOP_ORDER": 1},
    {"BLOCK": 128, "VEC": 4, "UNROLL": 4, "HIDDEN_TILE": 2, "SEPARABLE": 0, "FUSE_OUTPUT": 0, "LOOP_ORDER": 0},
    {"BLOCK": 256, "VEC": 8, "UNROLL": 1, "HIDDEN_TILE": 16, "SEPARABLE": 1, "FUSE_OUTPUT": 0, "LOOP_ORDER": 1},
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


def test_a_tensor_of_many_slabs_and_blocks():
    assert_same(lambda: [torch.randn(700, 1024), torch.randn(300_001), torch.randn(3, 200_000)], steps=2)
    assert 700 * 1024 > cpu.SLAB > BLOCK


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


def test_the_numpy_reference_equals_lopts_step():
    """What the tuner holds the kernel against is what the optimizer means."""
    module = kernels.find("lopt_small_fc_apply").reference()
    arguments = module.inputs(size=(24, 56), seed=1)
    t = {k: torch.from_numpy(x) for k, x in arguments.items() if hasattr(x, "shape") and x.shape}
    slow, fast = t["slow"].reshape(9, 24, 1), t["fast"].reshape(12, 1, 56)
    a = Accumulators(t["m"], t["v"], row=slow[3:6], col=fast[6:9], diag=None)
    (w1, b1), (w2, b2), (w3, b3) = (map(torch.from_numpy, layer) for layer in module._layers(arguments["weights"]))
    net = Folded(w1[:16].T, w1[16:22].T, w1[22:].T, b1, MLP((w2.T, w3), (b2, b3)))
    p = t["p"].clone()
    apply_(SMALL_FC, p, Gradient(t["g"], torch.float32), a, Factors(slow[:3], fast[:3]), net, None, None,
           float(arguments["weights"][-1]), False)  # fmt: skip
    torch.testing.assert_close(
        p, torch.from_numpy(module.expected(arguments)["out"]), rtol=module.RTOL, atol=module.ATOL
    )


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


def test_the_operator_is_well_formed():
    handle = cpu.library(32, ())
    n, x = 48, torch.randn
    arguments = (torch.empty(6, 8), x(6, 8), x(6, 8), x(3, 6, 8), torch.rand(6, 8), torch.rand(9, 6), torch.rand(12, 8),
                 x(28 * 32 + 32 + 1024 + 32 + 64 + 2 + 1), [1, 6, 1, 8, 1], handle)  # fmt: skip
    assert n == arguments[0].numel()
    torch.library.opcheck(torch.ops.lopt.small_fc_apply.default, arguments)


def test_every_axis_order_finds_its_row_and_column():
    """The factored axes at every place of a 4-D tensor: a wrong index would show in one of these."""
    assert_same(lambda: [torch.randn(s) for s in itertools.permutations((2, 3, 19, 23))], steps=2)
