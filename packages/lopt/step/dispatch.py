"""Picks who takes a step: plain PyTorch, tensor by tensor, or compiled kernels on the plan of all tensors.

`auto` takes the C++ kernels for float32 state on the CPU when they can be built, and says once what it took (logger "lopt").
Kernels that cannot be built are replaced by the reference with one warning; which one took the step never changes what
the step is.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ..features import FeatureSet
from ..models.mlp import MLP
from . import cpu, cuda
from .build import BuildError

BACKENDS = ("auto", "reference", "cpu", "cuda")
log = logging.getLogger("lopt")

Config = tuple[tuple[str, Any], ...] | None


def check(backend: str) -> str:
    """The name, or ValueError with the allowed ones."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    return backend


def kernels(
    backend: str,
    features: FeatureSet,
    mlp: MLP,
    device: torch.device,
    dtype: torch.dtype,
    config: Mapping[str, Any] | None,
) -> int | None:
    """The handle of the compiled kernels for one network, device and state type; None for the reference."""
    own = None if config is None else tuple(sorted(config.items()))
    if backend == "cuda":  # asked for by name only, until it has been run on a GPU
        if device.type != "cuda" or not cuda.serves(features, mlp, dtype):
            raise ValueError(f"backend='cuda' serves float32 state on a GPU, small_fc's networks of 8, 16 or 32 and VeLO's of 4: "
                             f"{features.name}, {dtype}, {device}, widths {mlp.widths} take backend='auto'")  # fmt: skip
        return _library(features, mlp.widths[1], own, cuda.architecture(device))
    possible = device.type == "cpu" and cpu.serves(mlp, dtype)
    if backend == "cpu" and not possible:
        raise ValueError(f"backend='cpu' serves float32 state on the CPU and networks of two equal hidden layers, a multiple of "
                         f"4 wide; this is {dtype} on {device}, widths {mlp.widths}: use backend='auto'")  # fmt: skip
    if backend == "reference" or not possible:
        return None
    return _library(features, mlp.widths[1], own, None)


@torch.compiler.assume_constant_result  # a compiled step asks while it is being traced, and once
def _library(features: FeatureSet, hidden: int, config: Config, arch: str | None) -> int | None:
    return _find_library(features, hidden, config, arch)


@functools.cache
def _find_library(features: FeatureSet, hidden: int, config: Config, arch: str | None) -> int | None:
    """The kernels' handle, or None after one warning; arch: of a GPU. Cached: the question is settled once per process."""
    language = "C++" if arch is None else "CUDA"
    try:
        if arch is None:
            chosen = cpu.configuration(cpu.KERNELS[features.name], None if config is None else dict(config))
            handle = cpu.library(features, hidden, chosen)
        else:
            chosen = config or ()
            handle = cuda.library(features, hidden, chosen, arch)
    except BuildError as e:
        message = f"lopt steps in plain PyTorch, several times slower than with its {language} kernels: {e}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    log.info("%s steps in %s (%s)", features.name, language, dict(chosen) or "default configuration")
    return handle
