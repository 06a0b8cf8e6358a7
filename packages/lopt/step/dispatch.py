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
from . import cpu
from .build import BuildError

BACKENDS = ("auto", "reference", "cpu")
log = logging.getLogger("lopt")


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
    possible = device.type == "cpu" and cpu.serves(mlp, dtype)
    if backend == "cpu" and not possible:
        raise ValueError(f"backend='cpu' serves float32 state on the CPU and networks of two equal hidden layers, a multiple of "
                         f"4 wide; this is {dtype} on {device}, widths {mlp.widths}: use backend='auto'")  # fmt: skip
    if backend == "reference" or not possible:
        return None
    return _library(features, mlp.widths[1], None if config is None else tuple(sorted(config.items())))


@torch.compiler.assume_constant_result  # a compiled step asks while it is being traced, and once
def _library(features: FeatureSet, hidden: int, config: tuple[tuple[str, Any], ...] | None) -> int | None:
    return _find_library(features, hidden, config)


@functools.cache
def _find_library(features: FeatureSet, hidden: int, config: tuple[tuple[str, Any], ...] | None) -> int | None:
    """The kernels' handle, or None after one warning. Cached: the question is settled once per process."""
    name = cpu.KERNELS[features.name]
    try:
        chosen = cpu.configuration(name, None if config is None else dict(config))
        handle = cpu.library(features, hidden, chosen)
    except BuildError as e:
        message = f"lopt steps in plain PyTorch, several times slower than with its C++ kernels: {e}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    log.info("%s steps in C++ (%s, %s)", features.name, name, dict(chosen) or "default configuration")
    return handle
