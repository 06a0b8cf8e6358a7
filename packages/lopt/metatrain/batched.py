"""`small_fc_step` for many particles at once, each with meta-weights of its own, in place.

`step_` takes it in C++ (`compiled`) where that can be built, else by `reference_step_` in plain PyTorch: one pass over
(particles, channels, elements). There time features and the first bias enter as one number per unit and particle, on a channel
that is always one, so the large product has 29 inputs, not 39. `lopt.step.reference` goes further and adds a vector per row and
one per column after the product; on matrices with rows of 16 that broadcast costs more than the product saves (measured: 32
hidden units by 3.4 ns an element). Tests hold both against `small_fc_step`.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from ..features import BASE_DECAYS, SMALL_FC, Axes, effective_decay, factor_features, safe_rsqrt, signal, time_features
from ..step import cpu
from . import compiled
from .layout import Layout, Piece

EXP_MULT, STEP_MULT = 1e-3, 1e-2  # as `small_fc_step` has them
INPUTS, OUTPUTS = 39, 2
OFFSETS = 7  # of the decays: momentum 3, rms 1, adafactor 3


@dataclass(frozen=True)
class MetaBatch:
    """Meta-weights of `n` particles, split by what the first layer's inputs depend on."""

    first: Tensor  # (n, h, 28) the first layer, its inputs in the order of `SMALL_FC.order`
    time: Tensor  # (n, h, 11)
    biases: tuple[Tensor, ...]  # (n, out, 1) each
    tail: tuple[Tensor, ...]  # (n, out, in): the layers after the first
    decays: Tensor  # (n, 7) effective ones: momentum 3, rms, adafactor 3
    packed: Tensor | None  # (n, K) the network as `compiled` reads it, if it serves such widths

    @property
    def momentum(self) -> Tensor:  # (n, 3)
        return self.decays[:, :3]

    @property
    def rms(self) -> Tensor:  # (n, 1)
        return self.decays[:, 3:4]

    @property
    def adafactor(self) -> Tensor:  # (n, 3)
        return self.decays[:, 4:]


@dataclass
class State:
    """What the learned optimizer remembers of every particle."""

    m: Tensor  # (n, 3, size)
    v: Tensor  # (n, size)
    row: list[Tensor]  # of each matrix, (n, 3, *shape) with size 1 at axis r
    col: list[Tensor]
    diag: Tensor  # (n, 3, size - factored), of vectors and scalars
    t: Tensor  # (n,) steps done

    def tensors(self) -> list[Tensor]:
        return [self.m, self.v, *self.row, *self.col, self.diag, self.t]

    def reset_(self, which: Tensor) -> None:
        """Back to zero for the particles (n,) bool."""
        for x in self.tensors():
            x[which] = 0


class Scratch:
    """What a step of `n` particles needs besides, made once for a layout and the hidden widths of the network.

    backend: "auto" steps in C++ where it serves these widths and can be built, "reference" in PyTorch, "cpu" in C++ or not at all
    (ValueError).
    """

    def __init__(self, n: int, layout: Layout, hidden: tuple[int, ...], backend: str = "auto") -> None:
        self.n, self.size, self.hidden = n, layout.size, hidden
        self.kernel = compiled.kernel(layout, hidden, backend)  # None: the reference steps

    @functools.cached_property
    def x(self) -> Tensor:
        """The reference's inputs; the last channel stays one: it carries the bias."""
        return torch.ones(self.n, SMALL_FC.size + 1, self.size)

    @functools.cached_property
    def layers(self) -> list[Tensor]:
        return [torch.empty(self.n, width, self.size) for width in (*self.hidden, OUTPUTS)]


def parameters_of(hidden: tuple[int, ...]) -> int:
    """Length of a flat meta-weight vector: the network and seven offsets."""
    widths = (INPUTS, *hidden, OUTPUTS)
    return sum((a + 1) * b for a, b in itertools.pairwise(widths)) + OFFSETS


def split(theta: Tensor, hidden: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """(n, D) -> weights (n, out, in), biases (n, out), offsets (n, 7): the order of a flat meta-weight vector."""
    widths, at = (INPUTS, *hidden, OUTPUTS), 0
    weights, biases = [], []
    for a, b in itertools.pairwise(widths):
        weights.append(theta[:, at : at + a * b].unflatten(1, (b, a)))
        biases.append(theta[:, at + a * b : at + (a + 1) * b])
        at += (a + 1) * b
    return weights, biases, theta[:, at:]


def meta_batch(theta: Tensor, hidden: tuple[int, ...] = (32, 32)) -> MetaBatch:
    """(n, D) flat meta-weights, one row per particle."""
    weights, biases, offsets = split(theta, hidden)
    first, size = weights[0], SMALL_FC.size
    decays = effective_decay([*BASE_DECAYS[0], BASE_DECAYS[1], *BASE_DECAYS[2]], offsets).contiguous()
    return MetaBatch(
        first=first[:, :, list(SMALL_FC.order)].contiguous(), time=first[:, :, size:].contiguous(),
        biases=tuple(b[..., None].contiguous() for b in biases), tail=tuple(w.contiguous() for w in weights[1:]),
        decays=decays, packed=cpu.pack(size, weights, biases) if compiled.serves(hidden) else None)  # fmt: skip


def initial_state(layout: Layout, n: int) -> State:
    """All zero; float32."""

    def without(piece: Piece, axis: int) -> list[int]:
        return [1 if i == axis else k for i, k in enumerate(piece.shape)]

    axes = [(piece, piece.axes) for piece in layout.matrices if piece.axes is not None]
    return State(
        m=torch.zeros(n, 3, layout.size), v=torch.zeros(n, layout.size),
        row=[torch.zeros(n, 3, *without(piece, a.r)) for piece, a in axes],
        col=[torch.zeros(n, 3, *without(piece, a.c)) for piece, a in axes],
        diag=torch.zeros(n, 3, layout.size - layout.factored), t=torch.zeros(n))  # fmt: skip


def step_(
    p: Tensor, g: Tensor, state: State, meta: MetaBatch, layout: Layout, scratch: Scratch, lr: Tensor | float = 1.0,
    by_signal: bool = False,
) -> None:  # fmt: skip
    """One step of every particle in place. p, g: (n, size). lr: a number, or (n, size) for rates per element.

    by_signal: multiplied by `lopt.features.signal` of each tensor besides.
    """
    if scratch.kernel is not None and scratch.kernel.takes(p, g, state, meta, layout):
        scratch.kernel.step_(p, g, state, meta, STEP_MULT * lr, EXP_MULT, by_signal)
    else:
        reference_step_(p, g, state, meta, layout, scratch, lr, by_signal)


def reference_step_(
    p: Tensor, g: Tensor, state: State, meta: MetaBatch, layout: Layout, scratch: Scratch, lr: Tensor | float = 1.0,
    by_signal: bool = False,
) -> None:  # fmt: skip
    """`step_` in plain PyTorch."""
    accumulate_(state, g, meta, layout)
    x = scratch.x  # (n, 29, size)
    vector_channels_(x[:, :16], p, g, state, layout)
    normalize_(x[:, :16], layout)
    side_channels_(x[:, 16:28], state, layout)
    constant = torch.baddbmm(meta.biases[0], meta.time, time_features(state.t)[..., None])  # (n, h, 1)
    hidden = torch.bmm(torch.cat([meta.first, constant], 2), x, out=scratch.layers[0])
    for weight, bias, out in zip(meta.tail, meta.biases[1:], scratch.layers[1:], strict=True):
        hidden = torch.bmm(weight, hidden.relu_(), out=out).add_(bias)
    if by_signal:
        lr = lr * signals(state, state.t, meta.momentum[:, :1], meta.rms, layout)
    p.sub_(hidden[:, 0] * torch.exp(EXP_MULT * hidden[:, 1]) * (STEP_MULT * lr))
    state.t += 1


def signals(state: State, t: Tensor, b1: Tensor, b2: Tensor, layout: Layout) -> Tensor:
    """`lopt.features.signal` of every element's tensor, (n, size), from the moments after the step and t (n,) before it.

    b1, b2: the decays of m_0 and v, () for all particles or (n, 1).
    """
    m2, v2 = layout.mean(torch.stack([state.m[:, 0], state.v]).square())  # (n, tensors) each
    return signal(m2, v2, b1, b2, t[:, None])[:, layout.owner]


def accumulate_(state: State, g: Tensor, meta: MetaBatch, layout: Layout) -> None:
    """m, v and Adafactor's moments; `lerp` is b x + (1 - b) y in one call."""
    square = g * g
    state.m.lerp_(g[:, None], (1 - meta.momentum)[..., None])
    state.v.lerp_(square, 1 - meta.rms)
    weight = 1 - meta.adafactor
    for piece, row, col in zip(layout.matrices, state.row, state.col, strict=True):
        q = square[:, piece.where].unflatten(1, piece.shape)
        own = weight.reshape(len(g), 3, *(1,) * len(piece.shape))
        axes = axes_of(piece)
        row.lerp_(q.mean(axes.r + 1, keepdim=True)[:, None] + 1e-30, own)
        col.lerp_(q.mean(axes.c + 1, keepdim=True)[:, None] + 1e-30, own)
    state.diag.lerp_(square[:, None, layout.factored :] + 1e-30, weight[..., None])


def axes_of(piece: Piece) -> Axes:
    """The factored axes of a matrix."""
    assert piece.axes is not None
    return piece.axes


def vector_channels_(x: Tensor, p: Tensor, g: Tensor, state: State, layout: Layout) -> None:
    """The channels that vary with every element into x (n, 16, size), in the order of `SMALL_FC.vector`."""
    split_at = layout.factored
    x[:, 0], x[:, 1], x[:, 2:5], x[:, 5] = g, p, state.m, state.v
    s = torch.rsqrt(state.v + SMALL_FC.rms_eps)
    torch.mul(state.m, s[:, None], out=x[:, 6:9])
    x[:, 9] = s
    scale = x[:, 13:16]
    for piece, row, col in zip(layout.matrices, state.row, state.col, strict=True):
        mean = row.mean(axes_of(piece).c + 2, keepdim=True)
        rf = safe_rsqrt(row / (mean + 1e-9))
        torch.mul(rf, safe_rsqrt(col), out=scale[:, :, piece.where].unflatten(2, piece.shape))
    torch.mul(scale[..., :split_at], g[:, None, :split_at], out=x[:, 10:13, :split_at])
    torch.mul(safe_rsqrt(state.diag + 1e-9), g[:, None, split_at:], out=x[:, 10:13, split_at:])
    torch.rsqrt(state.diag + SMALL_FC.diag_eps, out=scale[..., split_at:])
    scale.mul_(state.m)


def normalize_(x: Tensor, layout: Layout) -> None:
    """Every channel of every tensor divided by sqrt(eps + mean of squares over that tensor), in place."""
    for piece in layout.pieces:
        part = x[:, :, piece.where]
        mean = torch.linalg.vector_norm(part, dim=2, keepdim=True).square_().div_(piece.stop - piece.start)
        part.mul_(mean.add_(SMALL_FC.norm_eps).rsqrt_())


def side_channels_(x: Tensor, state: State, layout: Layout) -> None:
    """The row's and the column's normalised features into x (n, 12, size); a row's mean of squares is the tensor's."""
    for piece, row, col in zip(layout.matrices, state.row, state.col, strict=True):
        own = x[:, :, piece.where].unflatten(2, piece.shape)
        own[:, :6], own[:, 6:] = side_features(row), side_features(col)
    if layout.vectors:
        f = factor_features(state.diag.movedim(1, 0)).movedim(0, 1)  # (n, 6, size - factored)
        lengths = torch.bincount(layout.vector_owner, minlength=len(layout.vectors)).to(f.dtype)
        sums = f.new_zeros(len(f), 6, len(layout.vectors)).index_add_(2, layout.vector_owner, f * f)
        f = f * (SMALL_FC.norm_eps + sums / lengths).rsqrt()[:, :, layout.vector_owner]
        x[:, :6, layout.factored :], x[:, 6:, layout.factored :] = f, f


def side_features(moment: Tensor) -> Tensor:
    """A row or column moment (n, 3, *shape) -> its normalised features (n, 6, *shape)."""
    x = moment.flatten(2)
    f = torch.cat([x, (x + 1e-8).rsqrt()], 1)
    f = f * ((f * f).mean(2, keepdim=True) + SMALL_FC.norm_eps).rsqrt()
    return f.unflatten(2, moment.shape[2:])
