"""Lays all tensors of a step out in tiles, once: what a backend runs in a handful of launches, whatever the number of tensors.

A tensor is seen as (outer, x, mid, y, z), where x and y are its two factored axes in array order; below two dimensions it is
(1, 1, 1, n, 1). A tile is a rectangle of x and y (a range of batches outer x mid, if it holds whole ones), so that a tile
can sum its own rows and columns. Plain int64 arrays, so that C++ and CUDA read the same plan; docs/lopt-plan.md has the passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor

from ..features import Axes

AREA = 1 << 16  # elements of a tile, about: enough to make a tile's own costs small, few enough to share out
PARTIALS = 4 << 20  # floats of partial row and column sums at most; larger models get larger tiles
TILES = 1 << 16  # at most, beside one per tensor: for the same reason
LEAST_SIDE = 16  # a tile that does not hold whole columns is at least so high
LONG = 16  # times as wide as high: memory is read along rows
ALIGNED = 64  # rows are cut at multiples of it: whole blocks and vectors
DIMS = 6  # of a tensor whose strides are not those of a contiguous one

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # of parameters and gradients; state is float32
FACTORED, ROW_IS_SLOW = 1, 2  # flags

# One row per tensor; kernels/lopt_step/plan.h has the same names in the same order, which a test holds.
POINTERS = ("p", "g", "out", "m", "v", "slow", "fast")  # filled in at each step: bytes from the launch's base addresses
GEOMETRY = ("numel", "outer", "x", "mid", "y", "z", "flags", "p_type", "g_type", "out_type")
PLACES = (
    "slow_partial",
    "fast_partial",
    "first_tile",
    "tiles",
)  # partials: floats into scratch, -1 if tiles hold whole ones
STRIDES = ("size", "p_stride", "g_stride", "out_stride")  # DIMS of each, in elements, leading ones (1, 0, 0, 0)
FIELDS = (*POINTERS, *GEOMETRY, *PLACES, *(f"{name}{i}" for name in STRIDES for i in range(DIMS)))
# One row per tile: batches, x and positions in a row (y z + z) from .. to; which piece of a row (column) it is.
TILE_FIELDS = ("tensor", "batch_from", "batch_to", "x_from", "x_to", "j_from", "j_to", "x_piece", "j_piece")


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


class Form(NamedTuple):
    """All of a tensor that decides its place in a plan. Three tensors of one shape: parameter, gradient, output."""

    shape: tuple[int, ...]
    axes: Axes | None
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    types: tuple[torch.dtype, torch.dtype, torch.dtype]

    @staticmethod
    def of(p: Tensor, g: Tensor, out: Tensor, axes: Axes | None) -> Form:
        return Form(p.shape, axes, (p.stride(), g.stride(), out.stride()), (p.dtype, g.dtype, out.dtype))

    def served(self) -> bool:
        """Whether a plan can hold it: known types, strides that are not too odd, at least one element."""
        return all(t in TYPES for t in self.types) and len(merged(self)) <= DIMS and math.prod(self.shape) > 0


@dataclass(frozen=True)
class Plan:
    """Where everything lies. `tensors` has zeros in its POINTERS."""

    tensors: Tensor  # (T, len(FIELDS)) int64
    tiles: Tensor  # (N, len(TILE_FIELDS)) int64, those of a tensor side by side
    partials: int  # floats of scratch for row and column sums

    def filled(self, pointers: Sequence[Sequence[int]]) -> Tensor:
        """`tensors` with this step's addresses, seven lists of T in the order of POINTERS."""
        return torch.cat([torch.tensor(pointers, dtype=torch.int64).T, self.tensors[:, len(POINTERS) :]], 1)


def plan(forms: Sequence[Form], area: int = AREA) -> Plan:
    """The plan of some tensors; ValueError names a tensor that no plan can hold. Costs about 30 us a tensor."""
    for form in forms:
        if not form.served():
            raise ValueError(
                f"a tensor of shape {form.shape}, strides {form.strides[0]}, {form.types[0]} fits no plan: "
                f"it must hold something, be float32, bfloat16 or float16, and have at most {DIMS} strides"
            )
    shapes = [Geometry.of(form.shape, form.axes) for form in forms]
    most, total = area << 40, sum(math.prod(x) for x in shapes)
    factored = [x for form, x in zip(forms, shapes, strict=True) if form.axes is not None]
    while area < most and (total > TILES * area or sum(sum(partial_sizes(x, area)) for x in factored) > PARTIALS):
        area *= 4
    tensors: list[tuple[int, ...]] = []
    tiles: list[tuple[int, ...]] = []
    partials = 0
    for i, (form, geometry) in enumerate(zip(forms, shapes, strict=True)):
        own = list(cut(geometry, area))
        slow, fast = (0, 0) if form.axes is None else partial_sizes(geometry, area)
        places = (partials if slow else -1, partials + slow if fast else -1, len(tiles), len(own))
        tensors.append(record(form, geometry, places))
        tiles += [(i, *tile) for tile in own]
        partials += slow + fast
    return Plan(_table(tensors, FIELDS), _table(tiles, TILE_FIELDS), partials)


def _table(rows: list[tuple[int, ...]], names: tuple[str, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), len(names))


def record(form: Form, geometry: Geometry, places: tuple[int, int, int, int]) -> tuple[int, ...]:
    """One row of `Plan.tensors`."""
    axes = form.axes
    flags = 0 if axes is None else FACTORED | (ROW_IS_SLOW if axes.r > axes.c else 0)
    dims = merged(form)
    padded = [*[(1, 0, 0, 0)] * (DIMS - len(dims)), *dims]
    strides = [x for column in zip(*padded, strict=True) for x in column]
    types = (TYPES[t] for t in form.types)
    return (*(0 for _ in POINTERS), math.prod(form.shape), *geometry, flags, *types, *places, *strides)


def merged(form: Form) -> list[tuple[int, ...]]:
    """(size, stride of p, of g, of out) of as few axes as describe all three; one axis if all are contiguous."""
    dims: list[tuple[int, ...]] = []
    for size, *strides in zip(form.shape, *form.strides, strict=True):
        if size == 1:
            continue
        if dims and all(outer == size * inner for outer, inner in zip(dims[-1][1:], strides, strict=True)):
            dims[-1] = (dims[-1][0] * size, *strides)
        else:
            dims.append((size, *strides))
    return dims or [(1, 1, 1, 1)]


def sides(g: Geometry, area: int) -> tuple[int, int]:
    """How many x and how many y a tile has at most: LONG to one, and longer where the other side is short."""
    x = max(LEAST_SIDE, math.isqrt(max(1, area // (LONG * g.z))))
    y = max(LEAST_SIDE, area // (x * g.z))
    return max(x, area // (min(g.y, y) * g.z)), max(y, area // (min(g.x, x) * g.z))


def cut(g: Geometry, area: int) -> Iterator[tuple[int, ...]]:
    """Rows of `Plan.tiles` without the tensor: even pieces, or several whole batches at once where these are small."""
    x, y = sides(g, area)
    batches = g.outer * g.mid
    if g.x <= x and g.y <= y:
        together = max(1, area // (g.x * g.y * g.z))
        for b in range(0, batches, together):
            yield b, min(b + together, batches), 0, g.x, 0, g.y * g.z, 0, 0
        return
    xs = list(pairwise(edges(g.x, x, 1)))
    ys = list(pairwise(edges(g.y, y, ALIGNED)))
    for b, (i, (x0, x1)), (j, (y0, y1)) in product(range(batches), enumerate(xs), enumerate(ys)):
        yield b, b + 1, x0, x1, y0 * g.z, y1 * g.z, i, j


def edges(n: int, most: int, aligned: int) -> list[int]:
    """0 .. n in as few even pieces as `most` allows (nearly: the inner edges are multiples of `aligned`)."""
    width = math.ceil(n / math.ceil(n / most) / aligned) * aligned
    return [*range(0, n, width), n]


def partial_sizes(g: Geometry, area: int) -> tuple[int, int]:
    """Floats for partial sums of the slow and of the fast moment; 0 where a tile holds whole rows (columns)."""
    x, y = sides(g, area)
    slow, fast = g.outer * g.x * g.mid * g.z, g.outer * g.mid * g.y * g.z
    across, down = len(edges(g.y, y, ALIGNED)) - 1, len(edges(g.x, x, 1)) - 1
    return slow * across if across > 1 else 0, fast * down if down > 1 else 0
