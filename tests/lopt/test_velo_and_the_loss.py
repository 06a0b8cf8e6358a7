"""VeLO listens to the loss: any form of it, none of it, a broken one; and to what happens to parameters between steps."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from lopt import VeLO, VeLOWeights
from lopt.optim.velo import LossStats, loss_decays, loss_features, moments, statistics
from lopt.testing.subject import equal, give_gradients, parameters

WEIGHTS = VeLOWeights.random(0, width=8, bank=4)


def make(params, **options):
    return VeLO(params, 50, lr=100.0, weights=WEIGHTS, **options)


def run(optimizer, params, losses):
    for t, loss in enumerate(losses):
        give_gradients(params, t)
        optimizer.step(loss=loss)


def test_a_number_a_tensor_and_a_closure_are_the_same():
    sets = [parameters([(4, 3), (5,)]) for _ in range(3)]
    losses = [3.0, 2.5, 2.75, 2.0, 1.5]
    run(make(sets[0]), sets[0], losses)
    run(make(sets[1]), sets[1], [torch.tensor([x], dtype=torch.bfloat16) for x in losses])
    optimizer = make(sets[2])
    for t, loss in enumerate(losses):
        give_gradients(sets[2], t)
        returned = optimizer.step(lambda loss=loss: torch.tensor(loss))
        assert returned.item() == loss
    assert equal(sets[0], sets[1]) and equal(sets[0], sets[2])


def test_the_loss_matters():
    a, b = parameters([(4, 3)]), parameters([(4, 3)])
    run(make(a), a, [3.0, 2.0, 1.0, 0.5, 0.4])
    run(make(b), b, [3.0, 4.0, 5.0, 6.0, 7.0])
    assert not equal(a, b)


def test_without_a_loss_it_steps_and_says_so_once():
    params = parameters([(4, 3)])
    optimizer = make(params)
    give_gradients(params)
    with pytest.warns(RuntimeWarning, match="trained to watch the loss") as caught:
        optimizer.step()
        optimizer.step()
    assert len(caught) == 1 and not torch.equal(params[0].detach(), parameters([(4, 3)])[0].detach())


@pytest.mark.parametrize("bad", [math.nan, math.inf, torch.tensor(math.nan)])
def test_a_broken_loss_does_not_poison_the_minimum(bad):
    a, b = parameters([(4, 3)]), parameters([(4, 3)])
    first, second = make(a), make(b)
    run(first, a, [3.0, 2.0])
    run(second, b, [3.0, 2.0])
    first.step(loss=bad)
    run(first, a, [1.5, 1.0])
    run(second, b, [1.5, 1.0])
    assert equal(a, b)


def test_a_positional_loss_is_explained():
    with pytest.raises(TypeError, match="loss=loss"):
        make(parameters([(2,)])).step(torch.tensor(1.0))


@pytest.mark.parametrize("steps", [0, -1, 2.5, None])
def test_num_steps_is_a_number_of_steps(steps):
    with pytest.raises(ValueError, match="num_steps"):
        VeLO(parameters([(2,)]), steps, weights=WEIGHTS)


def test_one_step_in_all_is_allowed():
    params = parameters([(2, 2)])
    optimizer = VeLO(params, 1, weights=WEIGHTS)
    run(optimizer, params, [1.0, 1.0, 1.0])
    assert torch.isfinite(params[0]).all()


def test_a_parameter_that_joins_late_hears_what_the_others_heard():
    params = parameters([(4, 3), (5,)])
    optimizer = make(params[:1])
    run(optimizer, params[:1], [3.0, 2.0, 1.0])
    optimizer.add_param_group({"params": params[1:]})
    a, b = (optimizer.state[p] for p in params)
    assert all(torch.equal(a[k], b[k]) for k in ("step", "loss_mean", "loss_low")) and int(b["step"]) == 3
    run(optimizer, params, [1.0, 1.0])
    assert int(b["step"]) == 5 and torch.equal(a["loss_low"], b["loss_low"])


def test_statistics_are_those_of_the_parameter_as_it_is_now():
    """Changed between steps (an average loaded, a weight clipped): the next step is that of the new values."""
    a, b = parameters([(4, 3)]), parameters([(4, 3)])
    first = make(a)
    run(first, a, [3.0, 2.0])
    second = make(b)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    with torch.no_grad():
        a[0].mul_(7.0)
        b[0].copy_(a[0])
    run(first, a, [1.0])
    run(second, b, [1.0])
    assert equal(a, b)


def test_statistics_of_blocks_join_to_those_of_the_whole():
    torch.manual_seed(0)
    p = torch.randn(40, 30)
    from lopt.features import factored_axes, init_accumulators

    a = init_accumulators(p.shape, factored_axes(p.shape), p.device, p.dtype)
    a.m.copy_(torch.randn(3, 40, 30) + torch.tensor([0.0, 5.0, 500.0])[:, None, None])
    a.v.copy_(torch.rand(40, 30))
    m = moments(statistics(p, a, limit=100)[None])
    torch.testing.assert_close(m.m_var[0], a.m.double().reshape(3, -1).var(1, correction=0), rtol=1e-5, atol=0)
    torch.testing.assert_close(m.v_mean[0], a.v.double().mean(), rtol=1e-6, atol=0)
    one = init_accumulators((1,), None, p.device, p.dtype)
    one.m.fill_(0.1)
    assert not moments(statistics(p[:1, 0], one)[None]).m_var.any(), "the variance of one element is 0 to the bit"


def test_loss_features_begin_at_zero_and_stay_in_bounds():
    d, stats = loss_decays(50), LossStats(torch.zeros(10), torch.full((10,), 999999999999.0))
    for it, loss in enumerate([2.0, 1.0, 100.0, -3.0, 0.5]):
        f, stats = loss_features(stats, torch.tensor(it), torch.tensor(loss), d)
        assert f.abs().max() <= 1 and (it + 1 > 2 or not f.any())


def test_dimensions_beyond_the_one_hot():
    """Five dimensions larger than 1: no entry in the reference's one-hot, and no crash."""
    params = parameters([(2, 2, 2, 2, 2), (3,)])
    run(make(params), params, [1.0, 1.0, 1.0])
    assert all(torch.isfinite(p).all() for p in params)


def test_groups_with_other_meta_weights_do_not_hear_each_other():
    other = VeLOWeights.random(1, width=8, bank=4)
    a, b = parameters([(4, 3), (5, 2)]), parameters([(4, 3), (5, 2)])
    both = make([{"params": a[:1]}, {"params": a[1:], "weights": other}])
    alone = make(b[:1])
    run(both, a, [2.0, 1.0])
    for t, loss in enumerate([2.0, 1.0]):
        give_gradients(b, t)
        alone.step(loss=loss)
    assert torch.equal(a[0].detach(), b[0].detach())
