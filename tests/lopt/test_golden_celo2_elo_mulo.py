"""CELO2, ELO and MuLO against the recorded trajectories of PyLO's PyTorch classes and of JAX.

PyLO is followed where LEARNED_OPTIMIZERS.md 1.5 finds it right; what is left out is named in each test.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from golden_files import MULO_OFFSETS, jax_small_fc, largest_errors, names, parameters, theta

from lopt import CELO2, ELO, ELOCELO2, CELO2Weights, MuLO, SmallFCLOpt, SmallFCWeights, mulo_groups
from lopt.features import factored_axes, init_accumulators
from lopt.models.small_fc import StepScales
from lopt.optim.celo2 import DECAYS, celo2_step
from lopt.optim.mulo import MuReadout
from lopt.tasks.models import GPT, GPT_SIZES, VIT_SIZES, ViT


@pytest.mark.parametrize("orthogonalize", [True, False])
@pytest.mark.parametrize("weights", ["random", "published"])
def test_celo2_equals_pylo(golden, weights, orthogonalize):
    g = golden(f"celo2_pylonaive_{weights}_{'ortho' if orthogonalize else 'base'}")
    params = parameters(g, names(g))
    optimizer = CELO2(
        params.values(), lr=1e-2, weights=CELO2Weights.from_state(theta(g), {}), weight_decay=0.1, max_grad_norm=5.0,
        orthogonalize=orthogonalize, exp_mult=0.01 if weights == "random" else 0.0, layout="jax",
    )  # fmt: skip
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 2e-6, errors


def test_the_pure_celo2_step_equals_the_optimizer(golden):
    g = golden("celo2_pylonaive_random_ortho")
    weights = CELO2Weights.from_state(theta(g), {})
    from lopt.features import Decays

    decays = Decays(*(torch.tensor(b) for b in DECAYS))
    for n in ("c_mat", "d_conv", "h_3d", "f_thin"):
        p = torch.nn.Parameter(g[f"p0/{n}"].clone())
        p.grad = g[f"g/0/{n}"].clone()
        CELO2([p], lr=1e-2, weights=weights, weight_decay=0.1, exp_mult=0.01, layout="jax").step()
        axes = factored_axes(p.shape)
        a = init_accumulators(p.shape, axes, p.device, p.dtype)
        after, _ = celo2_step(g[f"p0/{n}"], p.grad, a, weights.mlp, axes, decays, 1e-2, 0.1, 0.01)
        torch.testing.assert_close(p.detach(), after, rtol=0, atol=1e-6)


def test_large_matrices_in_a_stack_are_normalised_singly():
    """A stack of matrices too large for one block takes another path than small ones, to the same values."""
    torch.manual_seed(0)
    weights = CELO2Weights.random(0)
    p, grad = torch.randn(2, 150, 160), torch.randn(2, 150, 160) * torch.rand(160)
    param = torch.nn.Parameter(p.clone())
    param.grad = grad
    CELO2([param], lr=1e-2, weights=weights, exp_mult=0.01, layout="jax").step()
    from lopt.features import Decays

    axes, decays = factored_axes(p.shape), Decays(*(torch.tensor(b) for b in DECAYS))
    a = init_accumulators(p.shape, axes, p.device, p.dtype)
    after, _ = celo2_step(p, grad, a, weights.mlp, axes, decays, 1e-2, 0.0, 0.01)
    torch.testing.assert_close(param.detach(), after, rtol=0, atol=2e-6)


def test_elo_equals_pylo(golden):
    """The file has no 0-d tensor: PyLO's are wrong there."""
    g = golden("elo_pylonaive_random")
    params = parameters(g, names(g))
    weights = SmallFCWeights.from_state(theta(g), {"decay_offsets": ZERO})
    optimizer = ELO(params.values(), lr=1e-2, weights=weights, weight_decay=0.1, exp_mult=0.01, layout="jax")
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 2e-6, errors


ZERO = {"momentum": [0, 0, 0], "rms": [0], "adafactor": [0, 0, 0]}


def test_elo_celo2_shares_moments_with_adamw(golden):
    """Matrices as CELO2; vectors as AdamW, which on fresh moments is CELO2's AdamW: both have betas 0.9 and 0.95."""
    g = golden("celo2_pylonaive_random_ortho")
    params = parameters(g, names(g))
    optimizer = ELOCELO2(params.values(), lr=1e-2, weights=CELO2Weights.from_state(theta(g), {}), max_grad_norm=5.0,
                         exp_mult=0.01, layout="jax")  # fmt: skip
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 2e-6, errors
    assert {"m", "v", "diag"} < set(optimizer.state[params["b_vec"]]) and "exp_avg" not in optimizer.state[
        params["b_vec"]
    ]


def test_small_fc_equals_pylo_but_for_scalars(golden):
    """Left out: a_scalar, where PyLO averages over the channels instead of within each."""
    for decays in ("mulo", "zero"):
        g, want = golden(f"adafac_jax_{decays}_decays"), golden(f"adafac_pylonaive_{decays}_decays")
        params = parameters(g, [n for n in names(g) if n != "a_scalar"])
        errors = largest_errors(SmallFCLOpt(params.values(), weights=jax_small_fc(g), layout="jax"), params, g, want)
        assert max(errors.values()) < 1e-6, errors


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_mulo_equals_jax(golden, backend):
    """The recorded scale is 1 / shape[0] for the 2-D tensors, 1 for all others."""
    g = golden("mulo_jax_mulo_decays")
    params = parameters(g, names(g))
    groups = [{"params": [p for p in params.values() if p.ndim == 2], "role": "hidden"},
              {"params": [p for p in params.values() if p.ndim != 2], "role": "other"}]  # fmt: skip
    optimizer = MuLO(groups, weights=jax_small_fc(g), layout="jax", backend=backend)
    for group, values in zip(optimizer.param_groups, optimizer._group_values, strict=True):
        for p in group["params"]:
            name = next(n for n, q in params.items() if q is p)
            assert optimizer.step_scale(p, group, values) == pytest.approx(g[f"lr_scale/{name}"].item(), rel=1e-6)
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 1e-6, errors


def test_mulo_equals_pylo_on_a_model_prepared_with_mup(golden):
    """PyLO scales the weight decay too, and applies it after the step."""
    g = golden("mulo_pylonaive_random")
    params = parameters(g, names(g))

    class InfShape:
        def __init__(self, name):
            self.name = name

        def ninf(self):
            return int(g[f"ninf/{self.name}"])

        def width_mult(self):
            return float(g[f"width_mult/{self.name}"])

    for n, p in params.items():
        p.infshape = InfShape(n)
    weights = SmallFCWeights.from_state(theta(g), {"decay_offsets": MULO_OFFSETS})
    optimizer = MuLO(
        params.values(),
        lr=1.0,
        weights=weights,
        weight_decay=0.01,
        decay_after_step=True,
        role="infshape",
        layout="jax",
    )
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 1e-6, errors


def test_mulo_groups_find_hidden_matrices():
    model = torch.nn.Sequential(
        torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), MuReadout(8, 3)
    )
    hidden, embedding, other = mulo_groups(model)
    assert [tuple(p.shape) for p in hidden["params"]] == [(8, 8), (8, 8)]
    assert [tuple(p.shape) for p in embedding["params"]] == [(20, 8)] and embedding["role"] == "embedding"
    assert len(other["params"]) == 4
    with pytest.raises(ValueError, match="no weight matrix in 7"):
        mulo_groups(model, outputs=["7"])
    x = torch.randn(2, 8)
    torch.testing.assert_close(model[3](x), torch.nn.functional.linear(x / 8, model[3].weight, model[3].bias))


def test_an_output_layer_that_is_not_multiplied_steps_as_hidden_ones_do():
    class Tied(torch.nn.Module):  # a table of positions of its own; the head is the embedding
        def __init__(self) -> None:
            super().__init__()
            self.token, self.hidden = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8)
            self.place, self.head = torch.nn.Parameter(torch.zeros(1, 5, 8)), torch.nn.Linear(8, 20, bias=False)
            self.head.weight = self.token.weight

    tied = Tied()
    hidden, other = mulo_groups(tied)
    assert {id(p) for p in hidden["params"]} == {id(tied.token.weight), id(tied.hidden.weight)}
    assert any(p is tied.place for p in other["params"])
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
    hidden, other = mulo_groups(plain)
    assert [tuple(p.shape) for p in hidden["params"]] == [(3, 8)]


def test_a_model_that_reads_tokens_has_no_other_input_layer():
    # Its first block's queries, keys and values were once taken for one, and stepped width / 16 times as far as they should.
    model = GPT(GPT_SIZES["tiny"], vocab=11, context=8)
    groups = mulo_groups(model, outputs=model.outputs)
    role = {id(p): group["role"] for group in groups for p in group["params"]}
    assert role[id(model.blocks[0].attention.qkv.weight)] == "hidden"
    assert {role[id(p)] for p in model.parameters() if p.ndim < 2} == {"other"}
    vit = ViT(VIT_SIZES["tiny"], side=8, patch=2, channels=1, classes=3)
    found = {id(p) for group in mulo_groups(vit) if group["role"] == "other" for p in group["params"]}
    assert id(vit.patches.weight) in found, "a ViT's patches are read by a layer that does not widen at its input"


def test_mulo_weights_say_their_base_width():
    w = SmallFCWeights.random(0)
    marked = SmallFCWeights.from_state(w.to_state()[0], {**w.to_state()[1], "hidden_lr_mult": 16.0})
    assert marked.to("cpu", torch.float64).scales == StepScales(16.0) and marked.to_state()[1]["hidden_lr_mult"] == 16.0
    g, moved = torch.randn(4, 32), {}
    for name, weights, options in (("marked", marked, {}), ("by hand", w, {"hidden_lr_mult": 16.0}), ("one", w, {})):
        p = torch.nn.Parameter(torch.zeros(4, 32))
        p.grad = g.clone()
        MuLO([p], weights=weights, decay_offsets=None, backend="reference", **options).step()
        moved[name] = p.detach()
    assert torch.equal(moved["marked"], moved["by hand"]) and torch.allclose(moved["marked"], 16 * moved["one"])
    by_rule = {}
    for role, weights in itertools.product(("hidden", "embedding", "other"), (marked, w)):
        p = torch.nn.Parameter(torch.zeros(4, 32))
        optimizer = MuLO([{"params": [p], "role": role}], weights=weights, decay_offsets=None)
        by_rule[role, weights is marked] = optimizer.step_scale(
            p, optimizer.param_groups[0], optimizer._group_values[0]
        )
    assert list(by_rule.values()) == [0.5, 1 / 32, 0.5, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"trained for MuLO.*use lopt\.MuLO"):
        SmallFCLOpt([p], weights=marked)


def test_mulo_needs_no_lr_and_no_mup():
    """PyLO's own example raises KeyError 'lr'."""
    p = torch.nn.Parameter(torch.ones(4, 6))
    p.grad = torch.randn(4, 6)
    MuLO([p], weights="random:0").step()
    with pytest.raises(ValueError, match="infshape"):
        MuLO([p], weights="random:0", role="infshape").step()
