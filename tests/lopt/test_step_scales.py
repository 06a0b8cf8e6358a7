"""Meta-weights may say that steps fall as (1 + t / T)^-1/2 and follow the signal: every backend and tensor must take them so."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lopt import MuLO, SmallFCLOpt, SmallFCWeights
from lopt.features import factored_axes, init_accumulators, signal
from lopt.models.small_fc import StepScales
from lopt.optim.small_fc import small_fc_step

T = 3.0
PLAIN = SmallFCWeights.random(1)
FALLING = replace(PLAIN, scales=StepScales(lr_decay_steps=T))


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((8, 16), (16,), (), (1, 5))]


def trained(
    optimizer: torch.optim.Optimizer, steps: int, lr: float | None = None, first: int = 0
) -> list[torch.Tensor]:
    """Parameters after `steps` steps; with `lr`, which falls here by hand."""
    ps = [p for group in optimizer.param_groups for p in group["params"]]
    for t in range(first, first + steps):
        generator = torch.Generator().manual_seed(t)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] if lr is None else lr * (1 + t / T) ** -0.5
        for p in ps:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return [p.detach().clone() for p in ps]


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_it_is_a_schedule_of_the_learning_rate(backend: str) -> None:
    # Weight decay follows the rate, as it does under any schedule.
    found = trained(SmallFCLOpt(parameters(), 0.7, FALLING, weight_decay=0.1, backend=backend), 6)
    wanted = trained(SmallFCLOpt(parameters(), 0.7, PLAIN, weight_decay=0.1, backend=backend), 6, lr=0.7)
    kept = trained(SmallFCLOpt(parameters(), 0.7, PLAIN, weight_decay=0.1, backend=backend), 6)
    for p, start, own, other in zip(found, parameters(), wanted, kept, strict=True):
        moved = (own - start).abs().max()
        assert (p - own).abs().max() < 1e-5 * moved < 1e-2 * (other - own).abs().max()


def test_a_tensor_learning_rate_and_mulos_scales_fall_too() -> None:
    scales = StepScales(16.0, 0.25)
    weights, falling = replace(PLAIN, scales=scales), replace(PLAIN, scales=replace(scales, lr_decay_steps=T))
    found = trained(MuLO(parameters(), torch.tensor(0.5), falling), 5)
    wanted = trained(MuLO(parameters(), 0.5, weights), 5, lr=0.5)
    for p, own, start in zip(found, wanted, parameters(), strict=True):
        assert (p - own).abs().max() < 1e-5 * (own - start).abs().max()


def test_each_tensor_counts_its_own_steps() -> None:
    # A tensor that joins later begins at the full rate: what falls is a matter of what it has gone through.
    early, late = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    alone, g = torch.nn.Parameter(torch.ones(4, 4)), torch.randn(4, 4)
    optimizer = SmallFCLOpt([early], 1.0, FALLING)
    early.grad = g.clone()
    for _ in range(5):
        optimizer.step()
    optimizer.add_param_group({"params": [late]})
    fresh = SmallFCLOpt([alone], 1.0, FALLING)
    for p in (early, late, alone):
        p.grad = g.clone()
    optimizer.step(), fresh.step()
    assert torch.equal(late, alone)


def test_a_group_may_say_otherwise() -> None:
    plain = trained(SmallFCLOpt(parameters(), 1.0, PLAIN), 5)
    still = trained(SmallFCLOpt(parameters(), 1.0, FALLING, lr_decay_steps=math.inf), 5)
    assert all(torch.equal(a, b) for a, b in zip(plain, still, strict=True))
    said = trained(SmallFCLOpt([{"params": parameters(), "lr_decay_steps": T}], 1.0, PLAIN), 5)
    assert all(
        torch.equal(a, b) for a, b in zip(said, trained(SmallFCLOpt(parameters(), 1.0, FALLING), 5), strict=True)
    )
    with pytest.raises(ValueError, match=r"lr_decay_steps=0: it must be a positive number, or None"):
        SmallFCLOpt(parameters(), lr_decay_steps=0)
    with pytest.raises(ValueError, match=r"hidden_lr_mult=-1: it must be a positive number, or None"):
        MuLO(parameters(), hidden_lr_mult=-1)


def test_state_dicts_from_before_are_taken_up() -> None:
    optimizer = SmallFCLOpt(parameters(), 1.0, FALLING)
    trained(optimizer, 2)
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        del group["lr_decay_steps"]
    again = SmallFCLOpt([p for group in optimizer.param_groups for p in group["params"]], 1.0, FALLING)
    again.load_state_dict(state)
    trained(again, 1, first=2)


def test_what_is_said_travels_and_what_is_not_leaves_no_word(tmp_path) -> None:
    for scales in (StepScales(), StepScales(lr_decay_steps=T), StepScales(16.0, 0.25, T, by_signal=True)):
        folder = replace(PLAIN, scales=scales).save_pretrained(tmp_path / str(scales.said))
        assert SmallFCWeights.from_pretrained(folder).scales == scales
    assert not set(PLAIN.to_state()[1]) & {"hidden_lr_mult", "vector_lr_mult", "lr_decay_steps", "by_signal"}


def test_the_factor_is_one_at_the_start_and_half_after_three_times_as_many_steps() -> None:
    assert StepScales(lr_decay_steps=100.0).after(torch.tensor([0.0, 300.0])).tolist() == pytest.approx([1.0, 0.5])
    assert StepScales().after(torch.tensor([0.0, 300.0])).tolist() == [1.0, 1.0]


# ---- the signal ------------------------------------------------------------------------------------------------------

HEARING = replace(PLAIN, scales=StepScales(lr_decay_steps=T, by_signal=True))


def heard(gradients: torch.Tensor, b1: float = 0.9, b2: float = 0.999) -> torch.Tensor:
    """The signal after each of the gradients (steps, n)."""
    m, v, out = torch.zeros(gradients.shape[1]), torch.zeros(gradients.shape[1]), []
    for t, g in enumerate(gradients):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        decays = torch.tensor(b1), torch.tensor(b2)
        out.append(signal((m * m).mean(), (v * v).mean(), *decays, torch.tensor(float(t))))
    return torch.stack(out)


def test_signal_is_one_where_gradients_agree_and_a_quarter_where_they_are_noise() -> None:
    agreeing = torch.tensor([1.0, -1.0, 1.0]).expand(300, 3)
    assert torch.allclose(heard(agreeing), torch.ones(300), atol=1e-4)
    noise = torch.randn(2000, 50, generator=torch.Generator().manual_seed(0))
    assert heard(noise)[-500:].mean() == pytest.approx((0.1 / 1.9) ** 0.5, rel=0.1)
    assert torch.allclose(heard(noise[:50] * 1e-6), heard(noise[:50]), rtol=1e-3), "the loss's scale is not heard"


def test_signal_of_nothing_moves_nothing_and_has_a_derivative() -> None:
    nothing = torch.zeros(2, requires_grad=True)
    found = signal(nothing[0] ** 2, nothing[1] ** 2, torch.tensor(0.9), torch.tensor(0.999), torch.tensor(0.0))
    (g,) = torch.autograd.grad(found, nothing)
    assert found < 1e-5 and g.isfinite().all()
    for b1 in (0.0, 1.0):  # offsets may take a decay to its ends
        assert heard(torch.ones(4, 2), b1).isfinite().all()


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_every_backend_takes_the_steps_of_the_formula(backend: str) -> None:
    optimizer = SmallFCLOpt(parameters(), 0.7, HEARING, backend=backend)
    found, start = trained(optimizer, 6), parameters()
    unheard = trained(SmallFCLOpt(parameters(), 0.7, FALLING, backend=backend), 6)
    now = [p.detach() for p in start]
    memories = [init_accumulators(p.shape, factored_axes(p.shape, "torch"), p.device, p.dtype) for p in now]
    for t in range(6):
        generator = torch.Generator().manual_seed(t)
        for i, p in enumerate(now):
            now[i], memories[i] = small_fc_step(
                p, torch.randn(p.shape, generator=generator), memories[i], torch.tensor(float(t)), PLAIN.mlp, PLAIN.decays(),
                factored_axes(p.shape, "torch"), 0.7 * (1 + t / T) ** -0.5, by_signal=True)  # fmt: skip
    for p, own, plain, origin in zip(found, now, unheard, start, strict=True):
        assert (p - own).abs().max() < 1e-4 * (own - origin).abs().max()
        assert not torch.allclose(p, plain, rtol=1e-3)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_skipped_step_leaves_all_as_it_was(backend: str) -> None:
    ps = parameters()
    optimizer = SmallFCLOpt(ps, 1.0, HEARING, backend=backend)
    before = trained(optimizer, 3)
    for p in ps:
        p.grad = torch.full_like(p, math.nan)
    optimizer.step()
    assert all(torch.equal(p, old) for p, old in zip(ps, before, strict=True))
    assert all(p.isfinite().all() for p in trained(optimizer, 1, first=3))
