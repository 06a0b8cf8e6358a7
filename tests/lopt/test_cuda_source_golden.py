"""The CUDA source, run on the CPU, walks the JAX reference's trajectories as the optimizers drive it: 20 steps, all tensors.

Tolerance: 1e-6, that of every backend.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
import torch
from cuda_on_cpu import library
from golden_files import jax_small_fc, jax_velo, largest_errors, names, parameters

from lopt import SmallFCLOpt, VeLO
from lopt.step import build, cpu, cuda, dispatch
from metabench import kernel as kernels


@pytest.fixture
def on_cuda(monkeypatch):
    """The optimizers' operators lead to the CUDA backend, and that to a library which the C++ compiler built."""

    def use(**macros):
        def measure(handle, b):
            return cuda._measure(*b.arguments(), b.rates, b.decays, *b.rule(), handle)

        def apply(handle, b, *arrays):
            cuda._apply(*b.arguments(), b.rates, *arrays, *b.rule(), handle)

        monkeypatch.setattr(dispatch, "kernels", lambda backend, features, *_: library(features, **macros))
        monkeypatch.setattr(cpu, "measure_", measure)
        monkeypatch.setattr(cpu, "apply_", apply)

    return use


@pytest.mark.parametrize("precision", [0, 1])
@pytest.mark.parametrize("file", ["adafac_jax_mulo_decays", "adafac_jax_zero_decays"])
def test_small_fc_equals_jax(golden, on_cuda, file, precision):
    g = golden(file)
    on_cuda(PRECISION=precision)
    params = parameters(g, names(g))
    errors = largest_errors(SmallFCLOpt(params.values(), weights=jax_small_fc(g), layout="jax"), params, g)
    assert max(errors.values()) < 1e-6, errors


def test_tf32_alone_does_not(golden, on_cuda):
    """What the split is for; and that the operators do lead here."""
    g = golden("adafac_jax_mulo_decays")
    on_cuda(PRECISION=2)
    params = parameters(g, names(g))
    errors = largest_errors(SmallFCLOpt(params.values(), weights=jax_small_fc(g), layout="jax"), params, g)
    assert max(errors.values()) > 1e-5


@pytest.mark.parametrize("file", ["velo_jax_small", "velo_jax_small_noscalar"])
def test_velo_equals_jax(golden, on_cuda, file):
    g = golden(file)
    on_cuda()
    params = parameters(g, names(g))
    optimizer = VeLO(params.values(), num_steps=int(g["num_steps"]), weights=jax_velo(g), layout="jax")
    errors = largest_errors(optimizer, params, g)
    assert max(errors.values()) < 1e-6, errors


def test_it_is_asked_for_by_name_and_only_where_it_serves():
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    with pytest.raises(ValueError, match=r"serves float32 state on a GPU.*: small_fc, torch.float32, cpu, widths"):
        SmallFCLOpt([p], weights="random:0", backend="cuda").step()


def test_without_nvcc_it_says_how_to_get_it(monkeypatch):
    from lopt.features import SMALL_FC

    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(build.BuildError, match="no nvcc found: install"):
        cuda.library(SMALL_FC, 32, (), "sm_1")


def test_a_collective_that_not_all_lanes_reach_is_caught(tmp_path):
    """On a GPU it would be undefined and might work by luck: the stand-in ends the program."""
    source = tmp_path / "diverge.cu"
    source.write_text(
        '#define THREADS 64\n#include "lopt_step/cuda/device.cuh"\n'
        "__global__ void k(int n) { if (lopt::lane_of_warp() < n) __shfl_xor_sync(~0u, 1.0f, 1); __syncthreads(); }\n"
        "int main(int n, char**) { LAUNCH(k, 1, nullptr, n > 1 ? 16 : 32); }\n"
    )
    program = str(tmp_path / "diverge")
    flags = ["-x", "c++", "-std=c++17", f"-I{kernels.root()}"]
    subprocess.run([*build.compiler(), *flags, "-o", program, str(source)], check=True)
    assert subprocess.run([program], check=False).returncode == 0
    broken = subprocess.run([program, "diverge"], capture_output=True, text=True, check=False)
    assert broken.returncode != 0
    assert "wait for each other" in broken.stderr
