"""The outer optimizer: what moves the meta-weights, how far, and what does not."""

from __future__ import annotations

import math

import pytest
import torch

from lopt.metatrain.outer import Gauge, Outer, OuterAdam


def test_a_wild_estimate_moves_nothing_and_a_growth_that_stays_is_followed() -> None:
    outer, g = OuterAdam(torch.zeros(3), Outer()), torch.tensor([1.0, 0.0, 0.0])
    for _ in range(5):
        outer.step(g, 0.1)
    before = outer.theta.clone()
    for wild in (1e14 * torch.ones(3), torch.full((3,), float("nan"))):
        outer.step(wild, 0.1)
        assert torch.equal(outer.theta, before)
    assert outer.step(5 * g, 0.1) == 5.0, "five times is much, and is clipped to twice"
    assert not torch.equal(outer.theta, before)
    for _ in range(150):
        outer.step(100 * g, 0.1)
    assert outer.norm > 50


def test_the_rate_rises_and_falls() -> None:
    rates = [Outer().rate(p) for p in (0.0, 0.005, 0.01, 0.5, 1.0)]
    assert rates[0] < rates[1] < rates[2] == pytest.approx(3e-3)
    assert rates[2] > rates[3] > rates[4] == pytest.approx(0.03 * 3e-3)


def test_a_first_estimate_that_exploded_does_not_still_the_run() -> None:
    # Adam's second moment would remember it for hundreds of steps.
    moved = {}
    for first in (1.0, 1e5):
        outer = OuterAdam(torch.zeros(3), Outer(warmup=0.0))
        outer.step(torch.tensor([0.0, first, 0.0]), 0.5)
        for _ in range(40):
            outer.step(torch.tensor([0.1, 0.0, 0.0]), 0.5)
        moved[first] = -outer.theta[0].item()
    assert moved[1e5] > 0.9 * moved[1.0] > 0
    again = OuterAdam(torch.zeros(3), Outer())
    again.load_state_dict(outer.state_dict())
    assert again.norm == outer.norm and again.first == outer.first


def test_a_gauge_counts_families_alike_and_keeps_what_is_loud_within_a_family() -> None:
    gauge, x = Gauge(Outer(clip=2.0, wild=10.0)), torch.tensor([3.0, 4.0])
    for _ in range(5):
        assert torch.equal(gauge.scaled(x, "digits"), x / 5)
        assert torch.allclose(gauge.scaled(x / 1000, "text"), x / 5)
    assert torch.allclose(gauge.scaled(0.1 * x, "digits"), 0.1 * x / 5), "the end of a training stays quiet"
    assert torch.allclose(gauge.scaled(7 * x, "digits"), 2 * x / 5), "no more than `clip`"
    assert not gauge.scaled(60 * x, "digits").any(), "wild"
    assert not gauge.scaled(x * math.nan, "digits").any() and not gauge.scaled(0 * x, "digits").any()
    again = Gauge(gauge.settings)
    again.load_state_dict(gauge.state_dict())
    assert torch.equal(again.scaled(x, "text"), gauge.scaled(x, "text"))


def test_the_average_of_meta_weights_is_steadier_than_they_are() -> None:
    torch.manual_seed(0)
    outer = OuterAdam(torch.zeros(8), Outer(lr=0.1, average=0.98, final=1.0))
    last, average = [], []
    for _ in range(400):  # a bowl around one, seen through noise
        outer.step(outer.theta - 1 + torch.randn(8), 0.5)
        last.append(outer.theta)
        average.append(outer.average)
    error = [(torch.stack(x[200:]) - 1).square().mean() for x in (last, average)]
    assert error[1] < 0.3 * error[0]
    plain = OuterAdam(torch.zeros(8), Outer())
    plain.step(torch.ones(8), 0.5)
    assert torch.equal(plain.average, plain.theta)
