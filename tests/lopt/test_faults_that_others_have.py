"""What is known to go wrong in an existing implementation of these optimizers, fault by fault, is absent here.

Closures, grad None, frozen parameters, add_param_group, 0-d and 5-D tensors, half types, tensor lr, NaN, resume, deepcopy and
more are properties of every optimizer: lopt.testing. Numbers are in the golden tests. Here are the rest.
"""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import torch
from torch import nn

import lopt
from lopt import CELO2, ELO, ELOCELO2, MuLO, SmallFCLOpt, VeLO, VeLOWeights
from lopt.testing import registry
from lopt.testing.subject import parameters, run

OURS = pytest.mark.parametrize("subject", registry(), ids=lambda s: s.name)


@OURS
def test_state_dict_has_torchs_two_keys_and_groups_hold_no_tensors(subject):
    """Extra keys break FSDP's and DCP's tools; decays as tensors inside groups do not move with the model."""
    state = run(subject, parameters()).state_dict()
    assert set(state) == {"state", "param_groups"}
    assert not [k for g in state["param_groups"] for k, x in g.items() if isinstance(x, torch.Tensor)]


@OURS
def test_a_step_gives_back_the_loss_of_its_closure(subject):
    p = nn.Parameter(torch.ones(2))
    optimizer = subject.make([p], lr=0.1)
    p.grad = torch.ones(2)
    assert optimizer.step(lambda: 1.25) == 1.25


@OURS
def test_a_vector_is_stored_once(subject):
    """PyLO keeps D twice for vectors."""
    p = nn.Parameter(torch.ones(1000))
    state = subject.make([p], lr=0.1).state[p]
    assert sum(x.numel() == 3000 for x in state.values()) <= 2, "m and D"


@OURS
def test_global_clipping_sees_all_groups(subject):
    """PyLO clips tensor by tensor: a huge gradient in one group must shrink the step of the others."""
    runs = []
    for other in (0.0, 1e3):
        a, b = parameters([(4, 3), (5,)])
        optimizer = subject.make([{"params": [a]}, {"params": [b], "lr": 0.0}], lr=0.1, max_grad_norm=1.0)
        a.grad, b.grad = torch.full((4, 3), 0.1), torch.full((5,), other)
        optimizer.step(**({"loss": 1.0} if subject.takes_loss else {}))
        momentum = optimizer.state[a].get("m", optimizer.state[a].get("exp_avg"))
        runs.append(momentum.abs().max().item())
    assert runs[1] < 0.01 * runs[0]


def test_learning_rates_are_those_of_the_weights():
    """PyLO's VeLO has lr 1e-3: a thousand times too small."""
    default = {
        c: inspect.signature(c).parameters["lr"].default for c in (SmallFCLOpt, MuLO, VeLO, CELO2, ELO, ELOCELO2)
    }
    assert default == {SmallFCLOpt: 1.0, MuLO: 1.0, VeLO: 1.0, CELO2: 1e-3, ELO: 1e-3, ELOCELO2: 1e-3}


def test_adam_lr_mult_is_one_number_everywhere():
    assert ELOCELO2(parameters([(2,)]), weights="random:0").defaults["adam_lr_mult"] == 1.0


def test_frozen_layers_in_velo():
    """LoRA, frozen backbones, mixtures of experts: PyLO's VeLO crashes on a parameter without gradient."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    optimizer = VeLO(model.parameters(), 10, weights=VeLOWeights.random(0, width=8, bank=4))
    kept = model[0].weight.clone()
    for _ in range(3):
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step(loss=loss)
    assert torch.equal(model[0].weight, kept)


def test_a_float64_model_and_conv3d():
    model = nn.Conv3d(2, 3, 2).double()
    for make in (SmallFCLOpt, CELO2):
        optimizer = make(model.parameters(), weights="random:0")
        model(torch.randn(1, 2, 3, 3, 3, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_import_is_quiet_compiles_nothing_and_needs_no_network(tmp_path):
    code = (
        "import socket, sys, warnings; socket.socket.connect = None; warnings.simplefilter('error'); import lopt; "
        "assert not {'huggingface_hub', 'safetensors', 'mup'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={"XDG_CACHE_HOME": str(tmp_path), "PATH": ""})  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())


def test_fork_after_use():
    """A data loader's workers are forked from a process that has stepped with the kernel."""
    code = (
        "import os, torch; from lopt import SmallFCLOpt; torch.set_num_threads(1); "
        "p = torch.nn.Parameter(torch.ones(9)); p.grad = torch.ones(9); "
        "o = SmallFCLOpt([p], weights='random:0'); o.step(); pid = os.fork(); o.step(); "
        "os._exit(0) if pid == 0 else None; raise SystemExit(os.waitpid(pid, 0)[1])"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=600, check=False).returncode == 0


def test_names_are_one_registry():
    assert lopt.available() == ["small_fc", "mulo", "velo", "celo2", "elo", "elo_celo2"]
    assert isinstance(lopt.create("celo2", parameters([(2, 2)]), weights="random:0"), CELO2)
    with pytest.raises(ValueError, match=r"did you mean 'velo'.*small_fc, mulo"):
        lopt.create("vello", parameters([(2, 2)]))


# Loss after 20 steps of a small regression with seeded random meta-weights: a change of behaviour between versions shows.
RATES = {"small_fc": 1.0, "mulo": 1.0, "velo": 3.0, "celo2": 0.01, "elo": 0.01, "elo_celo2": 0.01}
CURVE = {"small_fc": 1.0436, "mulo": 1.0436, "velo": 2.8916, "celo2": 0.62464, "elo": 1.0436, "elo_celo2": 0.62483}


@OURS
def test_the_loss_curve_is_that_of_the_last_version(subject):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(64, 6)
    y = x[:, :1] * x[:, 1:2]
    optimizer = subject.make(model.parameters(), lr=RATES[subject.name])
    for _ in range(20):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(**({"loss": loss} if subject.takes_loss else {}))
    assert loss.item() == pytest.approx(CURVE[subject.name], rel=1e-3)
