"""small_fc_lopt walks the JAX reference's trajectories: every tensor, scalars and ties included, for 20 steps.

Tolerance: 1e-6 is what the reference's own float32 noise allows (its trajectories move by 0.5); measured 1.2e-7.
"""

from __future__ import annotations

import pytest
import torch
from golden_files import jax_small_fc, largest_errors, names, parameters

from lopt import SmallFCLOpt
from lopt.features import factored_axes, init_accumulators
from lopt.optim.small_fc import small_fc_step

FILES = ("adafac_jax_mulo_decays", "adafac_jax_zero_decays")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_both_backends_equal_jax(golden, file, backend):
    g = golden(file)
    params = parameters(g, names(g))
    optimizer = SmallFCLOpt(params.values(), weights=jax_small_fc(g), layout="jax", backend=backend)
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 1e-6, errors


@pytest.mark.parametrize("file", FILES)
def test_accumulators_equal_jax(golden, file):
    g = golden(file)
    params = parameters(g, names(g))
    optimizer = SmallFCLOpt(params.values(), weights=jax_small_fc(g), layout="jax", backend="reference")
    largest_errors(optimizer, params, g)
    for n, p in params.items():
        state = optimizer.state[p]
        torch.testing.assert_close(state["m"].movedim(0, -1), g[f"mom/19/{n}"], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(state["v"], g[f"rms/19/{n}"].reshape(p.shape), rtol=1e-5, atol=1e-7)
        for key, recorded in (("row", "v_row"), ("col", "v_col"), ("diag", "v_diag")):
            if key in state:
                want = g[f"{recorded}/19/{n}"]
                torch.testing.assert_close(state[key].movedim(0, -1).reshape(want.shape), want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("file", FILES)
def test_effective_decays_equal_jax_to_the_bit(golden, file):
    g = golden(file)
    b = jax_small_fc(g).decays()
    assert torch.equal(b.momentum, g["beta/mom"])
    assert torch.equal(b.rms, g["beta/rms"][0])
    assert torch.equal(b.adafactor, g["beta/adafactor"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_pure_step_equals_jax(golden, dtype):
    """The function that meta-training differentiates; in float64 it shows that 1e-5 is the float32 reference's noise."""
    g = golden(FILES[0])
    weights = jax_small_fc(g)
    mlp, decays = weights.mlp.to("cpu", dtype), weights.decays().to(torch.device("cpu"), dtype)
    for n in names(g):
        p = g[f"p0/{n}"].to(dtype)
        axes = factored_axes(p.shape)
        a = init_accumulators(p.shape, axes, p.device, dtype)
        for t in range(20):
            p, a = small_fc_step(p, g[f"g/{t}/{n}"].to(dtype), a, torch.tensor(t), mlp, decays, axes)
            assert (p - g[f"p/{t}/{n}"]).abs().max() < (1e-6 if dtype == torch.float32 else 1e-5), (n, t)


def test_the_pure_step_maps_over_a_batch_and_differentiates(golden):
    g = golden(FILES[0])
    weights = jax_small_fc(g)
    decays, axes = weights.decays(), factored_axes((7, 5))
    p, grads = g["p0/c_mat"], torch.stack([g[f"g/{t}/c_mat"] for t in range(4)])
    a = init_accumulators(p.shape, axes, p.device, p.dtype)

    def one(grad):
        return small_fc_step(p, grad, a, torch.tensor(0), weights.mlp, decays, axes)[0]

    batched = torch.func.vmap(one)(grads)
    torch.testing.assert_close(batched, torch.stack([one(x) for x in grads]), rtol=0, atol=1e-7)
    weights.mlp.weights[0].requires_grad_()
    one(grads[0]).sum().backward()
    assert torch.isfinite(weights.mlp.weights[0].grad).all() and weights.mlp.weights[0].grad.abs().max() > 0
