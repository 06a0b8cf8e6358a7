"""Picks who applies a step: plain PyTorch or a compiled kernel.

A backend is one function of the type `Apply`. `auto` takes the C++ kernel for float32 state on the CPU when it can be
built. A kernel that cannot be built is replaced by the reference with one warning; which one took the step never changes
what the step is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ..features import SMALL_FC, Accumulators, Axes
from ..models.mlp import MLP
from . import cpu, reference
from .build import BuildError
from .reference import Factors, Folded, Gradient

BACKENDS = ("auto", "reference", "cpu")


class Apply(Protocol):
    """p <- shrink p - step, from accumulators and statistics that are already this step's."""

    def __call__(
        self, p: Tensor, g: Gradient, a: Accumulators, factors: Factors, net: Folded, axes: Axes | None,
        kept: Tensor | None, shrink: float | Tensor, shrink_after: bool,
    ) -> None: ...  # fmt: skip


def check(backend: str) -> str:
    """The name, or ValueError with the allowed ones."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    return backend


def applier(
    backend: str, device: torch.device, dtype: torch.dtype, mlp: MLP, config: Mapping[str, Any] | None
) -> Apply:
    """Who applies small_fc's step for parameters of one device and state type."""
    wanted = backend == "cpu" or (backend == "auto" and device.type == "cpu")
    if not wanted or not cpu.serves(mlp, dtype) or device.type != "cpu":
        if backend == "cpu":
            raise ValueError(f"backend='cpu' serves float32 state on the CPU and networks 39-h-h-2 with h a multiple of 16; "
                             f"this is {dtype} on {device}, widths {mlp.widths}: use backend='auto'")  # fmt: skip
        return partial(reference.apply_, SMALL_FC)
    handle = _library(mlp.widths[1], None if config is None else tuple(sorted(config.items())))
    return partial(reference.apply_, SMALL_FC) if handle is None else partial(cpu.apply_, handle)


@torch.compiler.assume_constant_result  # a compiled step asks while it is being traced, and once
def _library(hidden: int, config: tuple[tuple[str, Any], ...] | None) -> int | None:
    return _find_library(hidden, config)


@functools.cache
def _find_library(hidden: int, config: tuple[tuple[str, Any], ...] | None) -> int | None:
    """The kernel's handle, or None after one warning. Cached: the question is settled once per process."""
    try:
        return cpu.library(hidden, cpu.configuration(None if config is None else dict(config)))
    except BuildError as e:
        warnings.warn(
            f"lopt steps in plain PyTorch, about half as fast as with its C++ kernel: {e}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
