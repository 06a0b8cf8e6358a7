"""The apply pass in C++: kernels/lopt_small_fc_apply behind a torch operator.

`torch.ops.lopt.small_fc_apply` is registered once with `torch.library.Library` (about 15 us a call, where `custom_op` costs
92), takes tensors and the path of a loaded library, and has a fake kernel, so that it can stand in a compiled graph.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metabench import kernel as kernels

from ..features import SMALL_FC, Accumulators, Axes, Block, blocks, diag_scales, factor_features, part, present
from ..models.mlp import MLP
from . import build, tuned
from .reference import Factors, Folded, Gradient

KERNEL = "lopt_small_fc_apply"
SLAB = 1 << 18  # elements a call: bounds what is copied for odd strides and types, and a vector's 12 factor features


class Geometry(NamedTuple):
    """A factored tensor as (outer, x, mid, y, z): x and y are its factored axes in array order."""

    outer: int
    x: int
    mid: int
    y: int
    z: int

    @staticmethod
    def of(shape: tuple[int, ...], axes: Axes | None) -> Geometry:
        if axes is None:
            return Geometry(1, 1, 1, math.prod(shape), 1)
        first, second = sorted(axes)
        return Geometry(math.prod(shape[:first]), shape[first], math.prod(shape[first + 1 : second]), shape[second],
                        math.prod(shape[second + 1 :]))  # fmt: skip


_libraries: list[ctypes.CDLL] = []  # an operator's arguments are numbers: a library is known by its place


@cache
def library(hidden: int, config: tuple[tuple[str, Any], ...]) -> int:
    """Build or find the kernel for one width and configuration; its handle. BuildError if there is no way."""
    source = kernels.find(KERNEL).source(".cpp")
    lib = build.load(source, compiler_flags(), {"HIDDEN": hidden, **dict(config)})
    f = lib.lopt_small_fc_apply
    f.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_int64] * 6
    f.restype = ctypes.c_float
    _libraries.append(lib)
    return len(_libraries) - 1


def compiler_flags() -> list[str]:
    """The flags that tuning used too: they are part of the kernel's definition."""
    return list(kernels.find(KERNEL).space_definition()["KernelSpecification"]["CompilerOptions"])


def serves(mlp: MLP, dtype: torch.dtype) -> bool:
    """The kernel has two hidden layers of one width, a multiple of 16 up to 128, and computes in float32."""
    hidden = mlp.widths[1]
    shape = len(mlp.widths) == 4 and mlp.widths[2] == hidden and mlp.widths[3] == 2
    return shape and hidden % 16 == 0 and hidden <= 128 and dtype == torch.float32


def configuration(config: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    """The tunable parameters: those asked for, else the tuned entry's, else none (the source's defaults)."""
    names = [p["Name"] for p in kernels.find(KERNEL).space_definition()["ConfigurationSpace"]["TuningParameters"]]
    device = kernels.cpu_device(compiler_flags())
    chosen = config if config is not None else tuned.lookup(KERNEL, device, "cpu", "matrix", "float32") or {}
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise ValueError(f"{KERNEL} has no parameter {', '.join(unknown)}; it has {', '.join(names)}")
    return tuple(sorted(chosen.items()))


def pack(net: Folded, shrink: float | Tensor) -> Tensor:
    """The folded network as the kernel wants it: W1 (28, h), b1, W2 (in, out), b2, W3 (2, h), b3, shrink, end to end."""
    row = torch.zeros_like(net.col) if net.row is None else net.row
    (w2, w3), (b2, b3) = net.tail.weights, net.tail.biases
    parts = [
        torch.cat([net.vector, row, net.col], 1).T,
        net.bias,
        w2.T,
        b2,
        w3,
        b3,
        torch.as_tensor(shrink, dtype=torch.float32),
    ]
    return torch.cat([x.reshape(-1) for x in parts])


def apply_(
    handle: int, p: Tensor, g: Gradient, a: Accumulators, factors: Factors, net: Folded, axes: Axes | None,
    kept: Tensor | None, shrink: float | Tensor, shrink_after: bool,
) -> None:  # fmt: skip
    """p <- shrink p - step by the compiled kernel, slab by slab; odd strides and types are copied a slab at a time."""
    if axes is not None and axes.r > axes.c:  # R drops the later axis: it is what stays along a row
        slow, fast = (factors.row, a.row), (factors.col, a.col)
    else:
        slow, fast = (factors.col, a.col), (factors.row, a.row)
        net = _swapped(net)
    weights = pack(net, 1.0 if shrink_after else shrink)
    for block in blocks(p.shape, SLAB):
        view = p[block]
        old = view.to(torch.float32).contiguous()
        in_place = view.dtype == torch.float32 and view.is_contiguous() and g.ok is None
        out = view if in_place else torch.empty_like(old)
        m, v = part(a.m, block), a.v[block]
        geometry = Geometry.of(tuple(view.shape), axes)
        torch.ops.lopt.small_fc_apply(out, old, g[block].contiguous(), m, v, _slow(slow, block), _fast(fast, a, block),
                                      weights, list(geometry), handle)  # fmt: skip
        if shrink_after:
            out.mul_(shrink)
        if not in_place:
            view.copy_(out if g.ok is None else torch.where(g.ok, out, old))


def _swapped(net: Folded) -> Folded:
    """Rows and columns exchanged; a vector has only columns."""
    return net if net.row is None else net._replace(row=net.col, col=net.row)


def _slow(moment: tuple[Tensor | None, Tensor | None], block: Block) -> Tensor:
    """(9, ...): scales, moments, their rsqrt, of the factor that stays along a row; for a vector a neutral one."""
    scale, x = moment
    if scale is None or x is None:
        return torch.ones(9, 1)
    return torch.cat([part(scale, block), factor_features(part(x, block))]).reshape(9, -1)


def _fast(moment: tuple[Tensor | None, Tensor | None], a: Accumulators, block: Block) -> Tensor:
    """(12, ...): scales of g, scales of m, moments, their rsqrt, of the factor that varies along a row."""
    scale, x = moment
    if scale is None or x is None:
        diag = part(present(a.diag), block)
        return torch.cat([*diag_scales(SMALL_FC, diag), factor_features(diag)]).reshape(12, -1)
    scale = part(scale, block)
    return torch.cat([scale, scale, factor_features(part(x, block))]).reshape(12, -1)


def _launch(
    out: Tensor, p: Tensor, g: Tensor, m: Tensor, v: Tensor, slow: Tensor, fast: Tensor, weights: Tensor,
    geometry: list[int], handle: int,
) -> None:  # fmt: skip
    tensors = (p, g, m, v, out, slow, fast, weights)
    _libraries[handle].lopt_small_fc_apply(*(x.data_ptr() for x in tensors), *geometry, m.stride(0))


_schema = torch.library.Library("lopt", "DEF")
_schema.define(
    "small_fc_apply(Tensor(a!) out, Tensor p, Tensor g, Tensor m, Tensor v, Tensor slow, Tensor fast, Tensor weights, "
    "int[] geometry, int handle) -> ()"
)
_schema.impl("small_fc_apply", _launch, "CPU")
_schema.impl("small_fc_apply", lambda *_: None, "Meta")
