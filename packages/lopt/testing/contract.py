"""torch.optim's own contract, as checks: `torch.optim.AdamW` passes all of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import Tensor, nn

from .subject import Subject, equal, give_gradients, leaves, parameters, run, snapshot, step, through_disk


def check_every_shape_moves_and_keeps_its_form(s: Subject) -> None:
    """0-d, 1x1, empty, square, 5-D: values change and stay finite; shape and type do not change."""
    params = parameters()
    before = [p.detach().clone() for p in params]
    run(s, params)
    for p, q in zip(params, before, strict=True):
        assert p.shape == q.shape and p.dtype == q.dtype and torch.isfinite(p).all()
        assert p.numel() == 0 or not torch.equal(p, q), f"{tuple(p.shape)} did not move"


def check_strides_do_not_matter(s: Subject) -> None:
    """A transposed, a sliced and a channels_last parameter take the steps of their contiguous copies, and keep strides."""

    def make() -> list[Tensor]:
        g = torch.Generator().manual_seed(3)
        base, other = torch.randn(2, 6, 10, generator=g)
        return [base.T, other[::2, 1::3], torch.randn(2, 3, 4, 5, generator=g).to(memory_format=torch.channels_last)]

    odd = [nn.Parameter(x) for x in make()]
    plain = [nn.Parameter(x.contiguous()) for x in make()]
    strides = [p.stride() for p in odd]
    run(s, odd)
    run(s, plain)
    assert [p.stride() for p in odd] == strides
    for x, y in zip(odd, plain, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def check_the_same_run_gives_the_same_bits(s: Subject) -> None:
    a, b = parameters(), parameters()
    run(s, a)
    run(s, b)
    assert equal(a, b)


def check_closure_sees_gradients_enabled_and_its_loss_is_returned(s: Subject) -> None:
    p = nn.Parameter(torch.ones(3, 2))
    optimizer: Any = s.make([p], lr=0.1)

    def closure() -> Tensor:
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert torch.is_tensor(first) and first.item() == 6.0 and not torch.equal(p.detach(), torch.ones(3, 2))


def check_parameters_without_gradient_stay(s: Subject) -> None:
    """grad None and requires_grad=False, beside one that moves; the absent one may get its gradient later."""
    params = parameters([(4, 3), (4, 3), (5,)])
    params[1].requires_grad_(False)
    optimizer = s.make(params, lr=0.1)
    before = [p.detach().clone() for p in params]
    params[0].grad = torch.ones(4, 3)
    step(s, optimizer)
    assert (
        not torch.equal(params[0], before[0])
        and torch.equal(params[1], before[1])
        and torch.equal(params[2], before[2])
    )
    params[2].grad = torch.ones(5)
    step(s, optimizer)
    assert not torch.equal(params[2], before[2])
    for p in params:
        p.grad = None
    step(s, optimizer)


def check_tied_parameters_step_once(s: Subject) -> None:
    """An embedding that is also the output layer is one parameter."""
    model = nn.Sequential(shared := nn.Linear(4, 4, bias=False), again := nn.Linear(4, 4, bias=False))
    again.weight = shared.weight
    alone = nn.Parameter(shared.weight.detach().clone())
    optimizer, single = s.make(model.parameters(), lr=0.1), s.make([alone], lr=0.1)
    shared.weight.grad = torch.ones(4, 4)
    alone.grad = torch.ones(4, 4)
    step(s, optimizer)
    step(s, single)
    assert torch.equal(shared.weight.detach(), alone.detach())


def check_groups_can_be_added_and_have_their_own_rate(s: Subject) -> None:
    params = parameters([(4, 3), (5,), (3, 3)])
    optimizer = run(s, params[:2])
    optimizer.add_param_group({"params": [params[2]], "lr": 0.0})
    before = [p.detach().clone() for p in params]
    run(s, params, optimizer=optimizer)
    assert torch.equal(params[2], before[2]) and not torch.equal(params[0], before[0])
    optimizer.param_groups[1]["lr"] = 0.1
    run(s, params, optimizer=optimizer)
    assert not torch.equal(params[2], before[2])


def check_maximize_turns_the_gradient(s: Subject) -> None:
    a, b = parameters(), parameters()
    up, down = s.make(a, lr=0.1, maximize=True), s.make(b, lr=0.1)
    for t in range(3):
        give_gradients(a, t, sign=-1.0)
        give_gradients(b, t)
        step(s, up)
        step(s, down)
    assert equal(a, b)


def check_a_tensor_is_a_learning_rate(s: Subject) -> None:
    a, b = parameters(), parameters()
    rate = torch.tensor(0.25)
    optimizer = run(s, a, lr=rate)
    run(s, b, lr=0.25)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-7)
    still = [p.detach().clone() for p in a]
    rate.zero_()
    run(s, a, optimizer=optimizer)
    assert all(torch.equal(p, q) for p, q in zip(a, still, strict=True)), "the tensor is read at every step"


def check_weight_decay_is_decoupled(s: Subject) -> None:
    """On the value before the step: p - lr wd p beside the same step without it."""
    a, b = parameters([(5, 4), (7,)]), parameters([(5, 4), (7,)])
    old = [p.detach().clone() for p in a]
    run(s, a, steps=1, weight_decay=0.5)
    run(s, b, steps=1, weight_decay=0.0)
    for x, y, p in zip(a, b, old, strict=True):
        torch.testing.assert_close(x.detach(), y.detach() - 0.1 * 0.5 * p, rtol=1e-5, atol=1e-6)


def check_schedulers_drive_the_rate(s: Subject) -> None:
    """torch's schedulers, unchanged: LambdaLR to zero stops everything; cosine, one-cycle and plateau run."""
    params = parameters([(4, 3)])
    optimizer = s.make(params, lr=0.1)
    scheduler: Any = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: float(t < 2))
    for t in range(4):
        before = params[0].detach().clone()
        run(s, params, 1, t, optimizer)
        scheduler.step()
        assert torch.equal(params[0], before) == (t >= 2)
    lrs = torch.optim.lr_scheduler
    for make in (lambda o: lrs.CosineAnnealingLR(o, 5), lambda o: lrs.OneCycleLR(o, 0.1, total_steps=5, cycle_momentum=False),
                 lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o), lrs.ConstantLR(o)], [2])):  # fmt: skip
        optimizer = s.make(params, lr=0.1)
        scheduler = make(optimizer)
        run(s, params, 1, optimizer=optimizer)
        scheduler.step()


def check_a_scaler_skips_an_overflow(s: Subject) -> None:
    """GradScaler: an infinite gradient leaves parameters and state as they were; the next step is an ordinary one."""
    a, b = parameters([(4, 3), (5,)]), parameters([(4, 3), (5,)])
    optimizer, plain = run(s, a), run(s, b)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = snapshot(optimizer)
    for grads in (float("inf"), 4.0):
        scaler.scale(torch.ones(()))
        for p in a:
            p.grad = torch.full_like(p, grads)
        scaler.step(optimizer, **({"loss": 1.0} if s.takes_loss else {}))
        if grads == float("inf"):
            assert all(torch.equal(x, y) for x, y in zip(snapshot(optimizer), before, strict=True))
        scaler.update(4.0)
    for p in b:
        p.grad = torch.ones_like(p)
    step(s, plain)
    assert equal(a, b)


def check_state_is_tensors_and_numbers(s: Subject) -> None:
    state = run(s, parameters()).state_dict()
    for x in leaves(state):
        assert x is None or isinstance(x, (Tensor, bool, int, float)), f"{type(x).__name__} in the state dict"


def check_resume_is_exact(s: Subject) -> None:
    """Three steps, to disk, into a new optimizer, three more: the bits of six steps."""
    a, b = parameters(), parameters()
    straight = run(s, a, 6)
    saved = through_disk({"o": run(s, b, 3).state_dict(), "p": [p.detach() for p in b]})
    c = [nn.Parameter(x) for x in saved["p"]]
    fresh = s.make(c, lr=0.1)
    fresh.load_state_dict(saved["o"])
    run(s, c, 3, 3, fresh)
    assert equal(a, c)
    assert all(torch.equal(x, y) for x, y in zip(snapshot(straight), snapshot(fresh), strict=True))


def check_the_callers_dict_keeps_its_keys(s: Subject) -> None:
    """Loading twice from one dict works."""
    params = parameters([(4, 3), (5,)])
    saved = copy.deepcopy(run(s, params).state_dict())
    for _ in range(2):
        keys = copy.deepcopy({i: sorted(x) for i, x in saved["state"].items()})
        s.make(parameters([(4, 3), (5,)]), lr=0.1).load_state_dict(saved)
        assert {i: sorted(x) for i, x in saved["state"].items()} == keys


def check_copies_and_pickles_go_on_alike(s: Subject) -> None:
    a = parameters([(4, 3), (5,)])
    optimizer = run(s, a)
    copied_params, copied = copy.deepcopy((a, optimizer))
    pickled_params, pickled = pickle.loads(pickle.dumps((a, optimizer)))
    for params, other in ((a, optimizer), (copied_params, copied), (pickled_params, pickled)):
        run(s, params, 2, 3, other)
    assert equal(a, copied_params) and equal(a, pickled_params)


def check_hooks_run(s: Subject) -> None:
    params = parameters([(4, 3)])
    optimizer = s.make(params, lr=0.1)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.register_state_dict_pre_hook(lambda *_: seen.append("state"))
    run(s, params, 1, optimizer=optimizer)
    optimizer.state_dict()
    assert seen == ["before", "after", "state"]


def check_repr_says_what_it_is(s: Subject) -> None:
    text = repr(s.make(parameters([(4, 3)]), lr=0.125))
    assert "0.125" in text and "weight_decay" in text


def check_accumulated_gradients_are_gradients(s: Subject) -> None:
    """Two backward passes, one step: as one pass of the sum."""
    a, b = parameters([(4, 3)]), parameters([(4, 3)])
    first, second = s.make(a, lr=0.1), s.make(b, lr=0.1)
    for _ in range(2):
        (a[0] * torch.arange(12.0).reshape(4, 3)).sum().backward()
    (b[0] * torch.arange(12.0).reshape(4, 3) * 2).sum().backward()
    step(s, first)
    step(s, second)
    assert equal(a, b)


CONTRACT = [check for name, check in list(globals().items()) if name.startswith("check_")]
