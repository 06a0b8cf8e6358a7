"""All tensors of one network laid end to end, and many such networks side by side.

Meta-training runs dozens of copies of one small network at once ("particles"). A step on each tensor of each copy would be
thousands of calls on tiny arrays, so a particle is one row of a (particles, elements) matrix: tensors with factored moments
first, vectors and scalars after them, because the two kinds read different features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..features import Axes, factored_axes


@dataclass(frozen=True)
class Piece:
    """One tensor's place in a row."""

    index: int  # its place in the task's own order
    shape: tuple[int, ...]
    axes: Axes | None
    start: int
    stop: int

    @property
    def where(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Layout:
    """Where the tensors of a network lie in a row of `size` elements; the first `factored` of them have two or more axes."""

    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def pieces(self) -> list[Piece]:
        """In the order of the row: matrices first."""
        order = sorted(range(len(self.shapes)), key=lambda i: len(self.shapes[i]) < 2)
        out, start = [], 0
        for i in order:
            stop = start + math.prod(self.shapes[i])
            out.append(Piece(i, self.shapes[i], factored_axes(self.shapes[i], "torch"), start, stop))
            start = stop
        return out

    @cached_property
    def matrices(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.axes is not None]

    @cached_property
    def vectors(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.axes is None]

    @cached_property
    def size(self) -> int:
        """Elements of one network."""
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def factored(self) -> int:
        """Elements of its matrices, which come first."""
        return sum(piece.stop - piece.start for piece in self.matrices)

    @cached_property
    def vector_owner(self) -> Tensor:
        """(size - factored,) which of `vectors` an element belongs to."""
        lengths = torch.tensor([piece.stop - piece.start for piece in self.vectors], dtype=torch.int64)
        return torch.arange(len(lengths)).repeat_interleave(lengths)

    @cached_property
    def owner(self) -> Tensor:
        """(size,) which tensor, in the task's order, an element belongs to."""
        return torch.cat([torch.full((piece.stop - piece.start,), piece.index) for piece in self.pieces])

    @cached_property
    def member(self) -> Tensor:
        """(size, tensors) float32: 1 where an element belongs to a tensor, in the task's order."""
        return torch.nn.functional.one_hot(self.owner, len(self.shapes)).to(torch.float32)

    @cached_property
    def averaging(self) -> Tensor:
        """(size, tensors) float32: `member` over the tensors' sizes."""
        return self.member / self.member.sum(0)

    def mean(self, x: Tensor) -> Tensor:
        """(..., size) -> (..., tensors): each tensor's mean, in the task's order; a product, which is differentiated fast."""
        return x @ self.averaging.to(x.dtype)

    def spread(self, factors: Sequence[float]) -> Tensor:
        """(size,) a number for each tensor, in the task's order, to all of its elements."""
        return torch.tensor(factors, dtype=torch.float32)[self.owner]

    def pack(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors (n, *shape) in the task's order -> (n, size)."""
        return torch.cat([tensors[piece.index].reshape(len(tensors[0]), -1) for piece in self.pieces], 1)

    def unpack(self, rows: Tensor) -> list[Tensor]:
        """(n, size) -> views (n, *shape) in the task's order."""
        views = {piece.index: rows[:, piece.where].unflatten(1, piece.shape or (1,)) for piece in self.pieces}
        return [views[i] if shape else views[i][:, 0] for i, shape in enumerate(self.shapes)]
