"""What tuning must not do to a step: take it twice, confuse two configurations, lose its state under a compiler."""

from __future__ import annotations

import json

import torch

from lopt import SmallFCLOpt
from lopt.features import SMALL_FC
from lopt.step import cpu, dispatch, tuned
from metabench import kernel as kernels

FIRST, SECOND = {"BLOCK": 32}, {"BLOCK": 32, "FUSE_OUTPUT": 0}  # one flag apart


def optimizer(p, **options):
    return SmallFCLOpt([p], lr=1e-3, weights="random:0", backend="cpu", **options)


def a_step(**options):
    p = torch.nn.Parameter(torch.ones(5))
    p.grad = torch.full((5,), 1e-3)
    optimizer(p, **options).step()
    return p.detach()


def test_configurations_one_flag_apart_are_two_libraries():
    handles = [dispatch._find_library(SMALL_FC, 32, tuple(c.items()), None) for c in (FIRST, SECOND, FIRST)]
    assert handles[0] == handles[2] != handles[1]
    assert cpu._libraries[handles[0]].apply is not cpu._libraries[handles[1]].apply


def test_the_first_step_with_a_tuned_entry_is_the_plain_step_once():
    """p = 1, g = 1e-3, lr = 1e-3: an update that were applied once per configuration tried would be seen."""
    device = kernels.cpu_device(cpu.compiler_flags())
    folder = tuned.user_folder("lopt_small_fc_apply")
    folder.mkdir(parents=True)
    entry = {"kernel": "lopt_small_fc_apply", "device": device, "backend": "cpu", "shape_class": "matrix", "dtype": "float32",
             "configuration": SECOND}  # fmt: skip
    (folder / f"{device}.json").write_text(json.dumps([entry]))
    try:
        dispatch._find_library.cache_clear()
        assert cpu.configuration("lopt_small_fc_apply", None) == tuple(sorted(SECOND.items()))
        have = a_step()
    finally:
        (folder / f"{device}.json").unlink()
        dispatch._find_library.cache_clear()
    want = torch.nn.Parameter(torch.ones(5))
    want.grad = torch.full((5,), 1e-3)
    SmallFCLOpt([want], lr=1e-3, weights="random:0", backend="reference").step()
    assert not torch.equal(have, torch.ones(5))
    torch.testing.assert_close(have, want.detach(), rtol=0, atol=6e-8)


def test_the_state_is_whole_after_compiled_steps_of_all_tensors_at_once():
    """State that were keyed by tensors of the compiled graph would be missing here, and the copy would go another way."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    one, two = (torch.nn.Parameter(torch.ones(6, 4)) for _ in range(2))
    first = optimizer(one, config=FIRST)
    take = torch.compile(first.step, backend="eager")
    for _ in range(3):
        one.grad = torch.randn(6, 4)
        take()
    second = optimizer(two, config=SECOND)
    second.load_state_dict(first.state_dict())
    two.data.copy_(one.data)
    one.grad = two.grad = torch.randn(6, 4)
    take()
    second.step()
    assert int(second.state[two]["step"]) == 4
    torch.testing.assert_close(two.detach(), one.detach(), rtol=0, atol=1e-6)
