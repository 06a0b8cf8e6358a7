"""VeLO walks the JAX reference's trajectories: parameters, loss features, recurrent state; 20 steps, all tensors.

Tolerance 1e-6; measured 2.4e-7.
"""

from __future__ import annotations

import pytest
import torch
from golden_files import jax_velo, largest_errors, names, parameters

from lopt import VeLO
from lopt.features import BASE_DECAYS, Decays, factored_axes
from lopt.optim.velo import loss_decays, mixed_networks, velo_step

FILES = ("velo_jax_small", "velo_jax_small_noscalar", "velo_jax_full512x256")


def optimizer_of(g, params, **options):
    return VeLO(params, num_steps=int(g["num_steps"]), weights=jax_velo(g), layout="jax", **options)


@pytest.mark.parametrize("file", FILES)
def test_parameters_equal_jax(golden, file):
    g = golden(file)
    params = parameters(g, names(g))
    errors = largest_errors(optimizer_of(g, params.values()), params, g)
    assert max(errors.values()) < 1e-6, errors


def test_float64_is_as_near_as_float32_allows(golden):
    g = golden("velo_jax_small")
    params = parameters(g, names(g), torch.float64)
    optimizer = VeLO(params.values(), int(g["num_steps"]), weights=jax_velo(g), layout="jax")
    errors = largest_errors(optimizer, params, {k: x.double() if x.is_floating_point() else x for k, x in g.items()})
    assert max(errors.values()) < 1e-5, errors


def test_recurrent_and_loss_state_equal_jax(golden):
    g = golden("velo_jax_small")
    params = parameters(g, names(g))
    optimizer = optimizer_of(g, params.values())
    largest_errors(optimizer, params, g)
    states = [optimizer.state[p] for p in params.values()]
    for key, recorded in (("lstm_h", "lstm_h"), ("lstm_c", "lstm_c")):
        have = torch.stack([s[key] for s in states])
        torch.testing.assert_close(have, g[f"{recorded}/19"].reshape(have.shape), rtol=1e-4, atol=2e-6)
    for s in states:
        torch.testing.assert_close(s["loss_mean"], g["lossbuf_means/19"].reshape(10), rtol=1e-6, atol=0)
        torch.testing.assert_close(s["loss_low"], g["lossbuf_min/19"].reshape(10), rtol=1e-6, atol=0)
        assert int(s["step"]) == 20


def test_loss_decays_equal_jax_to_the_bit(golden):
    for file in FILES:
        g = golden(file)
        assert torch.equal(loss_decays(int(g["num_steps"])), g["lossbuf_decays"].reshape(10))


def test_pylo_on_the_shapes_where_it_follows_the_weights_layout(golden):
    """PyLO exchanges r and c of square matrices (not of its 4-D special case), which is our layout="torch" for matrices.

    One tensor's axes reach all others through the maximum over tensors, so both policies stand side by side here.
    """
    g, want = golden("velo_jax_small_noscalar"), golden("velo_pylonaive_small_noscalar")
    params = parameters(g, names(g))
    square = [p for n, p in params.items() if n == "g_square"]
    others = [p for n, p in params.items() if n != "g_square"]
    groups = [{"params": others, "layout": "jax"}, {"params": square, "layout": "torch"}]
    errors = largest_errors(VeLO(groups, int(g["num_steps"]), weights=jax_velo(g)), params, g, want)
    assert max(errors.values()) < 2e-6, errors


def test_the_pure_step_equals_the_optimizer(golden):
    """`velo_step` is what meta-training differentiates."""
    g = golden("velo_jax_small")
    w = jax_velo(g)
    p, grad, axes = g["p0/c_mat"], g["g/0/c_mat"], factored_axes((7, 5))
    decays = Decays(*(torch.tensor(b) for b in BASE_DECAYS))
    param = torch.nn.Parameter(p.clone())
    param.grad = grad.clone()
    optimizer = VeLO([param], 50, weights=w, layout="jax")
    optimizer.step(loss=1.0)
    h = optimizer.state[param]["lstm_h"][None]
    mlp = mixed_networks(w, w.controls(h), torch.ones(1))[0]
    from lopt.features import init_accumulators
    from lopt.models import MLP
    from lopt.optim.velo import EXP_MULT

    unscaled = MLP(mlp.weights, mlp.biases)
    unscaled.weights[-1][1] /= EXP_MULT
    unscaled.biases[-1][1] /= EXP_MULT
    a = init_accumulators(p.shape, axes, p.device, p.dtype)
    after, _ = velo_step(p, grad, a, unscaled, w.step_size(h)[0, 0], axes, decays)
    torch.testing.assert_close(param.detach(), after, rtol=0, atol=1e-6)
