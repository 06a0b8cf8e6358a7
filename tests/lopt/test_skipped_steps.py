"""A skipped step on a device whose flag must not be read: decided by arithmetic, everything stays to the bit.

The CPU may read its flag for nothing, so these tests forbid it and walk the path that a GPU takes.
"""

from __future__ import annotations

import math

import pytest
import torch

from lopt.optim import base
from lopt.testing import registry
from lopt.testing.subject import equal, give_gradients, parameters, run, snapshot, step

OURS = pytest.mark.parametrize("subject", registry(), ids=lambda s: s.name)


@pytest.fixture(autouse=True)
def the_flag_is_out_of_reach(monkeypatch):
    monkeypatch.setattr(base, "_decided_here", lambda ok: False)


@OURS
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nothing_changes_and_the_next_step_is_ordinary(subject, poison):
    a, b = parameters(), parameters()
    optimizer = run(subject, a, weight_decay=0.1)
    other = run(subject, b, weight_decay=0.1)
    give_gradients(a, 7)
    a[4].grad[0, 0] = poison
    before = snapshot(optimizer)
    step(subject, optimizer, loss=torch.tensor(3.0))
    for x, y in zip(snapshot(optimizer), before, strict=True):
        assert torch.equal(x, y)
    run(subject, a, 2, 3, optimizer)
    run(subject, b, 2, 3, other)
    assert equal(a, b)


@OURS
def test_no_value_is_read_from_the_device(subject, monkeypatch):
    """`.item()`, `bool()` and `.tolist()` of a tensor stop a GPU."""
    params = parameters()
    optimizer = run(subject, params, 1, backend="reference") if accepts_backend(subject) else run(subject, params, 1)
    give_gradients(params, 1)
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "__index__"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_: pytest.fail("a tensor's value was read"))
    step(subject, optimizer, loss=torch.tensor(1.0))


def accepts_backend(subject):
    return subject.name in ("small_fc", "mulo", "elo")


@OURS
def test_raise_waits_for_the_next_synchronisation(subject):
    params = parameters([(4, 3), (5,)])
    optimizer = subject.make([("a", params[0]), ("b", params[1])], lr=0.1, nonfinite="raise")
    give_gradients(params)
    params[1].grad[0] = math.nan
    before = snapshot(optimizer)
    step(subject, optimizer)
    assert all(torch.equal(x, y) for x, y in zip(snapshot(optimizer), before, strict=True)), "skipped meanwhile"
    give_gradients(params)
    with pytest.raises(FloatingPointError, match="parameter 'b'"):
        step(subject, optimizer)
    step(subject, optimizer)
    params[0].grad[0, 0] = math.inf
    step(subject, optimizer)
    with pytest.raises(FloatingPointError, match="parameter 'a'"):
        optimizer.state_dict()


def test_propagate_lets_it_through_or_replaces_it():
    """small_fc computes with the NaN; MuLO and ELO replace it, as their reference does."""
    from lopt import ELO, MuLO, SmallFCLOpt

    for make, survives in ((SmallFCLOpt, False), (MuLO, True), (ELO, True)):
        p = torch.nn.Parameter(torch.ones(4, 3))
        p.grad = torch.ones(4, 3)
        p.grad[0, 0] = math.nan
        make([p], weights="random:0", nonfinite="propagate").step()
        assert torch.isfinite(p).all() == survives


def test_a_gradient_whose_square_overflows_is_not_finite_either():
    from lopt import SmallFCLOpt

    p = torch.nn.Parameter(torch.ones(4, 3))
    p.grad = torch.full((4, 3), 1e20)
    optimizer = SmallFCLOpt([p], weights="random:0")
    optimizer.step()
    assert torch.equal(p.detach(), torch.ones(4, 3)) and not optimizer.state[p]["v"].any()
