"""A run goes on elsewhere: in a new process to the bit, through torch.distributed.checkpoint, after a load into bf16."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from lopt.testing import registry
from lopt.testing.subject import run, snapshot, step

PROGRAM = """
import sys, torch
from torch import nn
from lopt.testing import registry
from lopt.testing.subject import run
saved = torch.load(sys.argv[1], weights_only=True)
for s in registry():
    params = [nn.Parameter(x) for x in saved[s.name]["params"]]
    optimizer = s.make(params, lr=0.1)
    optimizer.load_state_dict(saved[s.name]["optimizer"])
    run(s, params, 2, 3, optimizer)
    saved[s.name] = [p.detach() for p in params]
torch.save(saved, sys.argv[2])
"""


def test_resume_in_a_new_process_is_exact(tmp_path):
    """State keyed by pointers or temporaries, or left out of the state dict, would not survive this."""
    from lopt.testing.subject import parameters

    saved, straight = {}, {}
    for s in registry():
        params = parameters()
        optimizer = run(s, params)
        saved[s.name] = {"params": [p.detach().clone() for p in params], "optimizer": optimizer.state_dict()}
        torch.save(saved[s.name], tmp_path / "one.pt")
        saved[s.name] = torch.load(tmp_path / "one.pt", weights_only=True)
        run(s, params, 2, 3, optimizer)
        straight[s.name] = params
    torch.save(saved, tmp_path / "in.pt")
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "in.pt", tmp_path / "out.pt"], check=True, timeout=600)
    resumed = torch.load(tmp_path / "out.pt", weights_only=True)
    for name, params in straight.items():
        assert all(torch.equal(p.detach(), q) for p, q in zip(params, resumed[name], strict=True)), name


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 2))


@pytest.mark.parametrize("subject", registry(), ids=lambda s: s.name)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
def test_distributed_checkpoint(subject, tmp_path):
    """Names of parameters instead of numbers, one process; a parameter that never had a gradient is in it."""
    model = model_of(0)
    optimizer = subject.make(model.parameters(), lr=0.1)
    for name, p in model.named_parameters():
        p.grad = None if name == "2.bias" else torch.randn_like(p)
    step(subject, optimizer)
    before = snapshot(optimizer)
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=tmp_path / "c", no_dist=True)
    other = model_of(0)
    fresh = subject.make(other.parameters(), lr=0.1)
    state = {"optimizer": get_optimizer_state_dict(other, fresh)}
    dcp.load(state, checkpoint_id=tmp_path / "c", no_dist=True)
    set_optimizer_state_dict(other, fresh, state["optimizer"])
    tensors = len(list(model.parameters()))
    assert all(torch.equal(x, y) for x, y in zip(snapshot(fresh)[tensors:], before[tensors:], strict=True))


def test_moving_to_another_device_type_keeps_the_rest():
    """map_location="cpu" and back: state follows the parameter it is loaded for (meta stands in for a GPU)."""
    from lopt import SmallFCLOpt

    p = torch.nn.Parameter(torch.ones(4, 3))
    p.grad = torch.ones(4, 3)
    optimizer = SmallFCLOpt([p], weights="random:0")
    optimizer.step()
    there = torch.nn.Parameter(torch.ones(4, 3, device="meta"))
    other = SmallFCLOpt([there], weights="random:0")
    other.load_state_dict(optimizer.state_dict())
    assert all(x.device.type == "meta" for x in other.state[there].values())
