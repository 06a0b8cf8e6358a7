"""The CUDA source, built by the C++ compiler against kernels/lopt_step/cuda/on_cpu.h, and one step of it beside the reference."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from lopt.features import (
    BASE_DECAYS,
    SMALL_FC,
    VELO,
    Accumulators,
    Decays,
    FeatureSet,
    factored_axes,
    init_accumulators,
)
from lopt.models.mlp import MLP, random_mlp
from lopt.optim.velo import statistics
from lopt.step import build, cpu, cuda
from lopt.step.reference import Factors, Gradient, Member, apply_, fold, measure_, scale_outputs, update_factors_
from metabench import kernel as kernels

FLAGS = ("-x", "c++", "-std=c++17", "-O2", "-Wno-unknown-pragmas")
WIDTHS = {SMALL_FC: (28, 32, 32, 2), VELO: (30, 4, 4, 3)}
DECAYS = Decays(*(torch.tensor(b) for b in BASE_DECAYS))


@cache
def library(features: FeatureSet, **macros: int) -> int:
    """A handle, as `cuda.library` returns one; two warps a block, so that they have something to share."""
    if not any(shutil.which(name) for name in ("g++", "c++", "clang++")):
        pytest.skip("needs a C++ compiler, to build the CUDA source for the CPU")
    source = kernels.root() / "lopt_step" / "lopt_step.cu"
    # Shared memory is static memory here, and GNU's unique symbols would make all configurations share it.
    own = () if "clang" in build._version(tuple(build.compiler())) else ("-fno-gnu-unique",)
    return cuda.register(features, build.load(source, (*FLAGS, *own), {"THREADS": 64, **macros}))


Make = Callable[[], list[Tensor]]


def members(make: Make, grads: Sequence[Tensor] | None = None, **changes: object) -> list[Member]:
    """Fresh members with seeded gradients whose rows and columns differ in size."""
    torch.manual_seed(0)
    params = make()
    if grads is None:
        grads = [(torch.randn(p.shape) * torch.rand(p.shape[-1:] or (1,)).reshape(p.shape[-1:])).to(p) for p in params]
    found = []
    for p, g in zip(params, grads, strict=True):
        axes = factored_axes(p.shape, "torch")
        a = init_accumulators(p.shape, axes, p.device, torch.float32)
        gradient = Gradient(
            g, torch.float32, **{k: changes[k] for k in ("scale", "bound", "ok", "replace_nan") if k in changes}
        )
        own = {k: x for k, x in changes.items() if k in Member._fields}
        rates = {"step_scale": 0.1, "exp_mult": 0.01, "shrink": 1.0, "shrink_after": False, **own}
        found.append(Member(p, gradient, a, axes, **rates))  # type: ignore[arg-type]
    return found


def networks(features: FeatureSet, count: int) -> list[MLP]:
    """One for all tensors, or VeLO's one for each; with biases, which fresh networks lack."""
    generator = torch.Generator().manual_seed(1)
    own = [random_mlp(WIDTHS[features], generator) for _ in range(count if features is VELO else 1)]
    own = [MLP(x.weights, tuple(torch.randn(b.shape, generator=generator) * 0.1 for b in x.biases)) for x in own]
    return own if features is VELO else own * count


def by_reference(features: FeatureSet, batch: list[Member], decays: Decays = DECAYS) -> Tensor:
    """A step of each in plain PyTorch; VeLO's statistics (T, 9)."""
    seen = [statistics(x.param, x.accumulators) for x in batch]
    for x, mlp in zip(batch, networks(features, len(batch)), strict=True):
        factors = (
            Factors(None, None) if x.axes is None else update_factors_(x.accumulators, x.grad, decays.adafactor, x.axes)
        )
        mean_square, kept = measure_(features, x.param, x.grad, x.accumulators, factors, decays)
        net = fold(features, scale_outputs(mlp, (x.step_scale, x.exp_mult)), mean_square, None, x.axes is not None)
        apply_(features, x.param, x.grad, x.accumulators, factors, net, x.axes, kept, x.shrink, x.shrink_after)
    return torch.stack(seen).float()


def by_cuda(features: FeatureSet, batch: list[Member], handle: int, decays: Decays = DECAYS) -> Tensor:
    """The same by the CUDA source."""
    own, together = networks(features, len(batch)), cpu.Batch.of(batch, decays)
    mean_square, seen = cuda._measure(*together.arguments(), together.rates, together.decays, *together.rule(), handle)
    packed = [cpu.pack(features.size, x.weights, x.biases) for x in own]
    network = torch.stack(packed) if features is VELO else packed[0]
    bias = torch.stack([x.biases[0] for x in own])
    cuda._apply(*together.arguments(), together.rates, mean_square, bias, network, *together.rule(), handle)
    return seen


def tensors_of(a: Accumulators) -> list[Tensor]:
    return [x for x in a if x is not None]
