"""Every optimizer's compiled step against its step in plain PyTorch, 20 steps, on shapes that break index arithmetic.

Tolerance: 5e-6 of how far the tensor moved, and one last place of its largest number, which is how p is stored. Measured
on these shapes: at most 1.2e-6 of the movement beyond the last place. Parameters begin at 0.1, so that steps are no rounding.
"""

from __future__ import annotations

import pytest
import torch

import lopt
from lopt.step import cpu

OPTIMIZERS = {
    "small_fc": {"step_mult": 0.1},
    "mulo": {"step_mult": 0.1, "lr": 30.0},
    "elo": {"lr": 0.1},
    "velo": {"num_steps": 100, "lr": 1000.0},
    "celo2": {"lr": 3e-2, "adamw_for_vectors": False, "orthogonalize": False},
    "elo_celo2": {"lr": 3e-2, "orthogonalize": False},
}
SHAPES = [(), (1,), (1, 1), (7,), (4099,), (13, 17), (1031, 3), (3, 1031), (64, 64), (2, 3, 5, 7, 3), (5, 5, 3, 3),
          (16, 24, 3, 3), (6, 40, 50), (40, 6, 50), (2, 700), (1, 5000), (5000, 1), (0,), (3, 0, 2)]  # fmt: skip


def draw(params):
    """Seeded gradients with uneven columns."""
    for p in params:
        x = torch.randn(p.shape) * torch.rand(p.shape[-1:] or (1,)).reshape(p.shape[-1:])
        p.grad = torch.empty_like(p).copy_(x)


def trajectory(name, backend, make, steps, **options):
    """Parameters after some steps, and how far they moved."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(p) for p in make()]
    before = [p.detach().clone().float() for p in params]
    optimizer = lopt.create(name, params, weights="random:3", backend=backend, **{**OPTIMIZERS[name], **options})
    for t in range(steps):
        draw(params)
        optimizer.step(**({"loss": 1.0 + 0.1 * t} if name == "velo" else {}))
    after = [p.detach().float() for p in params]
    return after, [(a - b).abs().max().item() if a.numel() else 0.0 for a, b in zip(after, before, strict=True)]


def assert_same(name, make, steps=20, exact=False, **options):
    """exact: against the reference in float64, where a tensor is so large that float32 noise of the reference shows."""
    wide = (lambda: [x.double() for x in make()]) if exact else make
    want, moved = trajectory(name, "reference", wide, steps, **options)
    have, _ = trajectory(name, "cpu", make, steps, **options)
    for x, y, m in zip(want, have, moved, strict=True):
        if x.numel():
            allowed = 5e-6 * m + torch.finfo(torch.float32).eps * x.abs().max()
            assert m > 0 and (x - y).abs().max() <= allowed, (name, tuple(x.shape), (x - y).abs().max() / m)


def small(shapes):
    return lambda: [0.1 * torch.randn(s) for s in shapes]


NAMES = pytest.mark.parametrize("name", OPTIMIZERS)


@NAMES
def test_hostile_shapes(name):
    assert_same(name, small(SHAPES))


@NAMES
def test_ties_as_jax_breaks_them(name):
    assert_same(name, small([(6, 6), (64, 64, 3, 3), (5, 5, 5)]), 5, layout="jax")


@NAMES
def test_odd_strides(name):
    """Transposed, sliced, channels_last, expanded gradients; and more strides than a plan holds, which are stepped alone."""

    def views():
        base = 0.1 * torch.randn(40, 60)
        return [base[::2, 1::3], base.clone().T, (0.1 * torch.randn(8, 4, 5, 6)).to(memory_format=torch.channels_last),
                (0.1 * torch.randn((2,) * 8)).permute(7, 6, 5, 4, 3, 2, 1, 0)]  # fmt: skip

    assert_same(name, views, 6)


def test_a_gradient_that_is_expanded():
    """One number with strides of zero, as backward functions of reductions make them."""
    after = []
    for backend in ("reference", "cpu"):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 77).reshape(7, 11))
        p.grad = torch.ones(()).expand(7, 11)
        lopt.SmallFCLOpt([p], weights="random:3", backend=backend).step()
        after.append(p.detach())
    torch.testing.assert_close(after[0], after[1], rtol=0, atol=2e-7)


@NAMES
def test_tensors_of_many_tiles(name):
    """Partial sums of rows and of columns, and a vector in several tiles."""
    assert_same(name, small([(700, 1024), (1024, 700), (300_001,), (3, 200_000), (128, 96, 3, 3)]), 2, exact=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@NAMES
def test_half_types(name, dtype):
    """Both round the same float32 value, except where it falls beside the middle of two half numbers."""
    make = lambda: [(0.1 * torch.randn(s)).to(dtype) for s in ((33, 65), (129,))]  # noqa: E731
    want, _ = trajectory(name, "reference", make, 4)
    have, _ = trajectory(name, "cpu", make, 4)
    for x, y in zip(want, have, strict=True):
        assert (x - y).abs().max() <= torch.finfo(dtype).eps * x.abs().max()
        assert (x != y).float().mean() < 0.01


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 6e-8, 5.97e-8, 2.98e-8, 3e-8, 6.1e-5, 65504.0, 65519.0, 65520.0, 1e30, float("inf")]
)
def test_every_kind_of_half_number_is_read_and_written_as_torch_does(value):
    """Subnormal, largest, overflowing: through a step of length zero, which writes what it read."""
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor([value, -value, 0.1, 3.0]).to(dtype)
        p = torch.nn.Parameter(x.clone())
        p.grad = torch.ones_like(p)
        lopt.SmallFCLOpt([p], lr=0.0, weights="random:3", backend="cpu", nonfinite="propagate").step()
        assert torch.equal(p.detach()[torch.isfinite(x)], x[torch.isfinite(x)])


@NAMES
def test_groups_weight_decay_clipping_and_maximize(name):
    decay_after = {"decay_after_step": True} if name in ("small_fc", "mulo", "elo", "velo") else {}
    assert_same(
        name, small([(13, 17), (64, 64), (7,)]), 6, weight_decay=0.1, max_grad_norm=0.5, maximize=True, **decay_after
    )


@pytest.mark.parametrize("name", ["small_fc", "velo"])
def test_ten_thousand_tensors_of_three_elements(name):
    """small_fc's tensors do not see each other: a hundred of them tell. VeLO's do: fewer, and all are compared."""
    n = 10_000 if name == "small_fc" else 500
    have, _ = trajectory(name, "cpu", small([(3,)] * n), 2)
    if name == "velo":
        want, moved = trajectory(name, "reference", small([(3,)] * n), 2)
    else:
        every = small([(3,)] * n)
        want, moved = [], []
        torch.manual_seed(0)
        starts = every()
        grads = []
        for _ in range(2):
            params = [torch.nn.Parameter(x) for x in starts]
            draw(params)
            grads.append([p.grad for p in params])
        params = [torch.nn.Parameter(x.clone()) for x in starts[:100]]
        optimizer = lopt.create(name, params, weights="random:3", backend="reference", **OPTIMIZERS[name])
        for t in range(2):
            for p, g in zip(params, grads[t], strict=False):
                p.grad = g
            optimizer.step()
        want = [p.detach() for p in params]
        moved = [(x - y).abs().max().item() for x, y in zip(want, starts, strict=False)]
    for x, y, m in zip(want, have, moved, strict=False):
        assert (x - y).abs().max() <= 5e-6 * m + torch.finfo(torch.float32).eps * x.abs().max()
    assert all(torch.isfinite(x).all() for x in have)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small_fc", "velo"])
def test_one_tensor_of_twenty_million(name):
    assert_same(name, small([(4001, 5003)]), 2)


def test_a_tensor_that_fits_no_plan_is_stepped_alone_and_is_not_forgotten():
    x = (0.1 * torch.randn((2,) * 8)).permute(7, 6, 5, 4, 3, 2, 1, 0)
    p, q = torch.nn.Parameter(x.clone(memory_format=torch.preserve_format)), torch.nn.Parameter(torch.ones(3, 3))
    assert p.stride() == x.stride()
    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
    from lopt.step.plan import Form

    assert not Form.of(p, p.grad, p, None).served() and Form.of(q, q.grad, q, None).served()
    lopt.SmallFCLOpt([p, q], weights="random:3", backend="cpu").step()
    assert not torch.equal(p.detach(), x) and not torch.equal(q.detach(), torch.ones(3, 3))


def test_double_precision_is_refused_by_name_and_left_to_the_reference_by_auto():
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match=r"float32 state on the CPU.*float64.*backend='auto'"):
        lopt.SmallFCLOpt([p], weights="random:3", backend="cpu").step()
    lopt.SmallFCLOpt([p], weights="random:3").step()
    assert not torch.equal(p.detach(), torch.ones_like(p))


def test_the_numbers_behind_apply_are_the_headers():
    from metabench import kernel as kernels

    text = (kernels.root() / "lopt_step" / "plan.h").read_text()
    named = text[text.index("enum Rate {") :].split("{")[1].split("}")[0].replace(" ", "").split(",")
    assert [name.lower() for name in named[:-1]] == list(cpu.RATES)
