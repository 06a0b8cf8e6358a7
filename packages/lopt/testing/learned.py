"""What is asked of learned optimizers beyond torch.optim's contract: float32 state, uncast loading, skipped steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .subject import SHAPES, Subject, equal, give_gradients, parameters, run, snapshot, step, through_disk


def check_half_parameters_have_float32_state(s: Subject) -> None:
    """bf16 and fp16: the step is computed in float32 and rounded once, so it is that of a float32 parameter, rounded."""
    for dtype in (torch.bfloat16, torch.float16):
        half = parameters(dtype=dtype)
        full = [nn.Parameter(p.detach().float()) for p in half]
        optimizer = s.make(half, lr=0.1)
        give_gradients(half)
        step(s, optimizer)
        other = s.make(full, lr=0.1)
        for p, q in zip(half, full, strict=True):
            q.grad = p.grad.float() if p.grad is not None else None
        step(s, other)
        for p, q in zip(half, full, strict=True):
            assert p.dtype == dtype
            torch.testing.assert_close(p.detach(), q.detach().to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)
        for state in optimizer.state.values():
            assert all(x.dtype in (torch.float32, torch.int64) for x in state.values())


def check_double_parameters_have_double_state(s: Subject) -> None:
    params = parameters([(4, 3), (5,)], torch.float64)
    optimizer = run(s, params)
    for state in optimizer.state.values():
        assert all(x.dtype in (torch.float64, torch.int64) for x in state.values())


def check_loading_keeps_types_and_bits(s: Subject) -> None:
    """float32 state of bf16 parameters, which torch's own load casts; and what is loaded is a copy."""
    params = parameters([(4, 3), (5,)], torch.bfloat16)
    saved = run(s, params).state_dict()
    kept = copy.deepcopy(saved)
    fresh_params = [nn.Parameter(p.detach().clone()) for p in params]
    fresh = s.make(fresh_params, lr=0.1)
    fresh.load_state_dict(saved)
    assert same_states(fresh.state_dict(), kept)
    run(s, fresh_params, 2, 3, fresh)
    assert same_states(saved, kept), "stepping the loaded optimizer changed the dict it was loaded from"


def check_a_state_that_does_not_fit_is_refused(s: Subject) -> None:
    """Another model's checkpoint: said at loading, not found out by a kernel at the next step."""
    saved = run(s, parameters([(4, 3), (5,)])).state_dict()
    optimizer = s.make(parameters([(4, 4), (5,)]), lr=0.1)
    try:
        optimizer.load_state_dict(saved)
    except ValueError as e:
        assert "(4, 4)" in str(e)
    else:
        raise AssertionError("a state of another shape was loaded")


def check_state_of_another_precision_is_converted(s: Subject) -> None:
    """A float64 run goes on in float32, and state that someone stored as bf16 is float32 again before a kernel reads it."""
    double = run(s, parameters([(4, 3), (5,)], torch.float64)).state_dict()
    params = parameters([(4, 3), (5,)])
    optimizer = s.make(params, lr=0.1)
    optimizer.load_state_dict(double)
    run(s, params, optimizer=optimizer)
    assert all(x.dtype in (torch.float32, torch.int64) for state in optimizer.state.values() for x in state.values())


def check_an_empty_state_leaves_what_is_there(s: Subject) -> None:
    """A dict that was saved before the first step of an optimizer that makes its state late."""
    params = parameters([(4, 3), (5,)])
    optimizer = s.make(params, lr=0.1)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": {}})
    run(s, params, optimizer=optimizer)


def same_states(a: dict, b: dict) -> bool:
    for x, y in zip(a["state"].values(), b["state"].values(), strict=True):
        if list(x) != list(y) or any(x[k].dtype != y[k].dtype or not torch.equal(x[k], y[k]) for k in x):
            return False
    return True


def check_a_parameter_that_never_had_a_gradient_has_state(s: Subject) -> None:
    """Distributed checkpoints need the same keys on every rank, before and after."""
    params = parameters([(4, 3), (5,)])
    optimizer = s.make(params, lr=0.1)
    before = {i: sorted(x) for i, x in optimizer.state_dict()["state"].items()}
    params[0].grad = torch.ones(4, 3)
    step(s, optimizer)
    after = {i: sorted(x) for i, x in optimizer.state_dict()["state"].items()}
    assert before == after and sorted(after) == [0, 1]


def check_every_tensor_is_in_the_state_dict(s: Subject) -> None:
    """No hidden buffers: what a step changes is a parameter or in the state dict."""
    params = parameters([(4, 3), (5,)])
    optimizer = run(s, params)
    saved = through_disk(optimizer.state_dict())
    run(s, params, 2, 3, optimizer)
    optimizer.load_state_dict(saved)
    restored = [x for state in optimizer.state.values() for x in state.values()]
    stored = [x for state in saved["state"].values() for x in state.values()]
    assert all(torch.equal(x, y) for x, y in zip(restored, stored, strict=True))
    own = [k for k, x in vars(optimizer).items() if isinstance(x, Tensor)]
    assert not own, f"tensor attributes outside the state: {own}"


def check_state_is_as_small_as_documented(s: Subject) -> None:
    optimizer = s.make([p := nn.Parameter(torch.zeros(512, 768))], lr=0.1)
    size = sum(x.numel() * x.element_size() for x in optimizer.state[p].values())
    assert size <= s.bytes_per_element * p.numel() + 40 * (512 + 768) + 40_000, (
        f"{size / p.numel():.2f} bytes an element"
    )


def check_sparse_and_complex_are_refused(s: Subject) -> None:
    p = nn.Parameter(torch.ones(4, 3))
    optimizer = s.make([p], lr=0.1)
    p.grad = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1), (4, 3), check_invariants=True)
    refused(lambda: step(s, optimizer), "sparse")
    refused(lambda: s.make([nn.Parameter(torch.ones(3, dtype=torch.complex64))], lr=0.1), "complex")


def refused(act: Callable[[], object], word: str) -> None:
    try:
        act()
    except TypeError as e:
        assert word in str(e), f"the message does not say {word!r}: {e}"
    else:
        raise AssertionError(f"{word} was not refused")


def check_a_step_with_nan_is_skipped(s: Subject) -> None:
    """Default: parameters, moments, step count and loss statistics stay, to the bit; the next step is as if nothing was."""
    for poison in (math.nan, math.inf, -math.inf):
        a, b = parameters(), parameters()
        optimizer, other = run(s, a), run(s, b)
        give_gradients(a, 7)
        assert a[4].grad is not None
        a[4].grad[1, 1] = poison
        before = snapshot(optimizer)
        step(s, optimizer, loss=5.0)
        assert all(torch.equal(x, y) for x, y in zip(snapshot(optimizer), before, strict=True))
        run(s, a, 2, 3, optimizer)
        run(s, b, 2, 3, other)
        assert equal(a, b)


def check_nan_can_raise_by_name(s: Subject) -> None:
    params = dict(zip(("inner.weight", "inner.bias"), parameters([(4, 3), (5,)]), strict=True))
    optimizer = s.make(list(params.items()), lr=0.1, nonfinite="raise")
    for p in params.values():
        p.grad = torch.ones_like(p)
    params["inner.bias"].grad[2] = math.nan  # type: ignore[index]
    before = snapshot(optimizer)
    try:
        step(s, optimizer)
    except FloatingPointError as e:
        assert "inner.bias" in str(e) and "inner.weight" not in str(e)
    else:
        raise AssertionError("a NaN gradient did not raise")
    assert all(torch.equal(x, y) for x, y in zip(snapshot(optimizer), before, strict=True))


def check_clipping_is_over_all_parameters(s: Subject) -> None:
    """max_grad_norm: as clipping the gradients together beforehand; p.grad is left alone."""
    a, b = parameters([(4, 3), (5,)]), parameters([(4, 3), (5,)])
    first, second = s.make(a, lr=0.1, max_grad_norm=0.5), s.make(b, lr=0.1, max_grad_norm=None)
    for t in range(3):
        give_gradients(a, t)
        give_gradients(b, t)
        kept = [p.grad.clone() for p in a if p.grad is not None]
        norm = torch.cat([x.reshape(-1) for x in kept]).norm()
        for p, g in zip(b, kept, strict=True):
            p.grad = g * (0.5 / max(float(norm), 0.5))
        step(s, first)
        step(s, second)
        assert all(torch.equal(p.grad, x) for p, x in zip(a, kept, strict=True))  # type: ignore[arg-type]
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def check_a_rank_deficient_gradient_is_ordinary(s: Subject) -> None:
    """All-zero, rank-one and constant gradients."""
    params = parameters([(6, 8), (6, 8), (6, 8), (5,)])
    optimizer = s.make(params, lr=0.1)
    for _ in range(3):
        for p, g in zip(
            params,
            (torch.zeros(6, 8), torch.ones(6, 1) @ torch.ones(1, 8), torch.eye(6, 8), torch.zeros(5)),
            strict=True,
        ):
            p.grad = g
        step(s, optimizer)
    assert all(torch.isfinite(p).all() for p in params)


def check_a_bad_setting_is_refused(s: Subject) -> None:
    for options in ({"lr": -1.0}, {"weight_decay": -0.1}, {"nonfinite": "ignore"}, {"layout": "tensorflow"}):
        try:
            s.make(parameters([(4, 3)]), **{"lr": 0.1, **options})
        except ValueError as e:
            assert str(next(iter(options.values()))) in str(e)
        else:
            raise AssertionError(f"{options} was accepted")


def check_many_steps_with_every_shape_stay_finite(s: Subject) -> None:
    params = parameters(SHAPES)
    run(s, params, 30)
    assert all(torch.isfinite(p).all() for p in params)


LEARNED = [check for name, check in list(globals().items()) if name.startswith("check_")]
