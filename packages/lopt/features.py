"""Accumulators and features of the learned optimizers: pure functions, one line per formula.

What an optimizer's small network sees of a parameter: the gradient, the parameter, three momenta, one second moment,
and Adafactor's row and column moments, at three decays. Everything is *feature-major* (channels first), so a matrix
product with the network's weights needs no transposition, and everything works on a whole tensor, on a rectangular
block of it, and under `torch.func.vmap`; device and float type are those of the inputs.

Source: google/learned_optimization (`adafac_mlp_lopt`, `hyper_v2`), the JAX reference; see docs/lopt-deviations.md.
Notation: EMA(x, y, b) = b x + (1 - b) y; q = g^2 + 1e-30; k = 0, 1, 2 indexes the three decays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TIME_SCALES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
BASE_DECAYS = ((0.9, 0.99, 0.999), 0.999, (0.9, 0.99, 0.999))  # momentum, rms, adafactor

Block = tuple[slice, ...]  # a rectangle in a tensor, one slice with start and stop per axis


class Decays(NamedTuple):
    """Effective decays b, float32: the reference computes 1 - b in float32 from these, and so do we."""

    momentum: Tensor  # (3,)
    rms: Tensor  # ()
    adafactor: Tensor  # (3,)

    def to(self, device: torch.device, dtype: torch.dtype) -> Decays:
        return Decays(*(b.to(device, dtype) for b in self))


class Accumulators(NamedTuple):
    """What an optimizer remembers of one parameter; `diag` replaces `row` and `col` below two dimensions."""

    m: Tensor  # (3, *shape) momenta
    v: Tensor  # (*shape) second moment
    row: Tensor | None  # (3, *shape), size 1 at axis r: mean of q over r
    col: Tensor | None  # (3, *shape), size 1 at axis c: mean of q over c
    diag: Tensor | None  # (3, *shape): q itself


class Axes(NamedTuple):
    """The two factored axes of a tensor: r is the largest, c the second largest."""

    c: int
    r: int


def factored_axes(shape: Sequence[int], layout: str = "jax") -> Axes | None:
    """Axes over which Adafactor's moments are factored, or None below two dimensions.

    The reference sorts axes by (size, index), so ties go by position, and positions differ between frameworks: a flax
    kernel is (*spatial, in, out), a torch weight is (out, in, *spatial). `layout="torch"` breaks ties in flax's order,
    which is what published weights were trained on; `layout="jax"` takes the array as it is and equals JAX bit for bit.
    Shapes without a tie among their three largest axes do not notice. The sort is Python's, which is stable (numpy's
    argsort is not, on AVX2 and AVX-512).
    """
    n = len(shape)
    if n < 2:
        return None
    if layout not in ("torch", "jax"):
        raise ValueError(
            f"unknown layout {layout!r}: 'torch' breaks ties as the weights were trained, 'jax' by position"
        )
    position = list(range(n)) if layout == "jax" else [n - 1, n - 2, *range(n - 2)]  # where flax has this axis
    order = sorted(range(n), key=lambda axis: (shape[axis], position[axis]))
    return Axes(c=order[-2], r=order[-1])


def effective_decay(base: float | Sequence[float], offset: Tensor, clip: bool = True) -> Tensor:
    """b = 1 - (1 - b0) exp(10 o), as the reference computes it, in float32: 1 - exp(10 (log(1 - b0) / 10 + o))."""
    b0 = torch.as_tensor(base, dtype=torch.float32, device=offset.device)
    b = 1 - torch.exp(10 * (torch.log(1 - b0) / 10 + offset.to(torch.float32)))
    return b.clamp(0, 1) if clip else b


def ema(x: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """b x + (1 - b) y, for decays b (k,) over x (k, *shape), or () over (*shape)."""
    b = b.reshape(b.shape + (1,) * (x.ndim - b.ndim))
    return b * x + (1 - b) * y


def init_accumulators(
    shape: Sequence[int], axes: Axes | None, device: torch.device, dtype: torch.dtype
) -> Accumulators:
    """All zero; no bias correction follows. Bytes per element in float32: 16, plus the two vectors."""

    def zeros(*size: int) -> Tensor:
        return torch.zeros(size, device=device, dtype=dtype)

    def without(axis: int) -> list[int]:
        return [1 if i == axis else n for i, n in enumerate(shape)]

    m, v = zeros(3, *shape), zeros(*shape)
    if axes is None:
        return Accumulators(m, v, None, None, zeros(3, *shape))
    return Accumulators(m, v, zeros(3, *without(axes.r)), zeros(3, *without(axes.c)), None)


def accumulate(a: Accumulators, g: Tensor, decays: Decays, axes: Axes | None) -> Accumulators:
    """One step of all accumulators, pure; the optimizers update in place, in blocks, by the same formulas."""
    q = g * g + 1e-30
    m, v = ema(a.m, g, decays.momentum), ema(a.v, g * g, decays.rms)
    if axes is None:
        return Accumulators(m, v, None, None, ema(present(a.diag), q, decays.adafactor))
    row = ema(present(a.row), q.mean(axes.r, keepdim=True), decays.adafactor)
    col = ema(present(a.col), q.mean(axes.c, keepdim=True), decays.adafactor)
    return Accumulators(m, v, row, col, None)


def present(x: Tensor | None) -> Tensor:
    """The moment itself; None means that the caller asked for one that a tensor of this rank does not have."""
    if x is None:
        raise ValueError("these accumulators belong to a tensor with other factored axes")
    return x


def safe_rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(max(x, 1e-9))."""
    return x.clamp(min=1e-9).rsqrt()


def row_factor(row: Tensor, axes: Axes) -> Tensor:
    """rf_k = srs(R_k / (mean_c(R_k) + 1e-9)), shaped like R."""
    return safe_rsqrt(row / (row.mean(axes.c + 1, keepdim=True) + 1e-9))


def col_factor(col: Tensor) -> Tensor:
    """cf_k = srs(C_k), shaped like C."""
    return safe_rsqrt(col)


def factor_features(x: Tensor) -> Tensor:
    """(3, ...) -> (6, ...): an Adafactor moment X_k and 1 / sqrt(X_k + 1e-8)."""
    return torch.cat([x, (x + 1e-8).rsqrt()])


def time_features(t: Tensor) -> Tensor:
    """tanh(t / tau - 1), (..., 11), from steps already done (...); not normalised."""
    tau = torch.tensor(TIME_SCALES, device=t.device, dtype=t.dtype)
    return torch.tanh(t[..., None] / tau - 1)


def signal(m2: Tensor, v2: Tensor, b1: Tensor, b2: Tensor, t: Tensor) -> Tensor:
    """How much a tensor's gradients agree from step to step: sqrt(mean m_0^2 / sqrt(mean v^2)), both corrected as Adam does.

    For elements that are alike 1 where gradients agree and sqrt((1 - b1) / (1 + b1)) where they are noise, 0.23 for b1 = 0.9;
    less where few elements have most of the gradient. The mean square of v and not its mean, because it is a feature's and is
    measured anyway. Of no scale, for gradients from 1e-7 to 1e9.

    m2, v2: means over the tensor of m_0^2 and of v^2, after the step. b1, b2: the decays of m_0 and v. t: steps done before it.
    All broadcast.
    """
    n = t + 1
    v = v2.clamp(min=1e-37).sqrt() / (1 - b2**n).clamp(min=1e-6)
    m2 = m2 / (1 - b1**n).clamp(min=1e-6) ** 2
    return (m2 / v + 1e-12).sqrt()  # has a derivative for a tensor that no gradient reaches


@dataclass(frozen=True)
class FeatureSet:
    """Which features one family of optimizers feeds its network, in which order, with which epsilons.

    Three parts are computed apart, because two of them depend on the row or the column alone and cost next to nothing:
    `vector` channels vary with every element; `row` and `col` are the six `factor_features` of R and of C.
    Each tuple holds the places of these channels in the reference's order.
    """

    name: str
    vector: tuple[int, ...]
    row: tuple[int, ...]
    col: tuple[int, ...]
    extra: bool  # VeLO's two additional channels: clip(g, -0.1, 0.1) and g s
    rms_eps: float  # s = 1 / sqrt(v + rms_eps)
    diag_eps: float  # below two dimensions, fac_k(m_k) = m_k (D_k + diag_eps)^-0.5
    norm_eps: float  # N(f) = f / sqrt(norm_eps + mean f^2)

    @property
    def size(self) -> int:
        return len(self.vector) + len(self.row) + len(self.col)

    @property
    def order(self) -> tuple[int, ...]:
        """Places in the reference's order of [vector, row, col] laid end to end."""
        return self.vector + self.row + self.col


SMALL_FC = FeatureSet("small_fc", (*range(13), 25, 26, 27), (13, 14, 15, 19, 20, 21), (16, 17, 18, 22, 23, 24),
                      extra=False, rms_eps=1e-6, diag_eps=1e-6, norm_eps=1e-5)  # fmt: skip
VELO = FeatureSet("velo", (*range(15), 27, 28, 29), (15, 16, 17, 21, 22, 23), (18, 19, 20, 24, 25, 26),
                  extra=True, rms_eps=1e-6, diag_eps=0.0, norm_eps=1e-5)  # fmt: skip
CELO2 = FeatureSet("celo2", VELO.vector, VELO.row, VELO.col, extra=True, rms_eps=1e-8, diag_eps=0.0, norm_eps=1e-9)


def vector_features(
    fs: FeatureSet, p: Tensor, g: Tensor, m: Tensor, v: Tensor, scale_g: Tensor, scale_m: Tensor
) -> Tensor:
    """The channels that vary with every element, (16 or 18, *shape).

    p, g, v: (*shape). m: (3, *shape). scale_g, scale_m: (3, *shape), what fac_k multiplies a gradient and a momentum by:
    rf_k cf_k where factored, else `diag_scales`. p is the parameter before the step; m and v are this step's.
    """
    s = (v + fs.rms_eps).rsqrt()
    clipped = [g.clamp(-0.1, 0.1)[None]] if fs.extra else []
    scaled = [(g * s)[None]] if fs.extra else []
    return torch.cat(
        [g[None], *clipped, p[None], m, v[None], m * s, s[None], g * scale_g, *scaled, m * scale_m]
    )  # (16 or 18, *shape)


def diag_scales(fs: FeatureSet, diag: Tensor) -> tuple[Tensor, Tensor]:
    """scale_g, scale_m below two dimensions: srs(D_k + 1e-9) and (D_k + eps)^-0.5; the reference has two epsilons."""
    return safe_rsqrt(diag + 1e-9), (diag + fs.diag_eps).rsqrt()


def features(fs: FeatureSet, p: Tensor, g: Tensor, a: Accumulators, axes: Axes | None) -> Tensor:
    """All channels of a whole tensor in the reference's order, (28 or 30, *shape), not normalised. Pure.

    `a` are the accumulators after this step's `accumulate`; `p` is the parameter before the step.
    """
    if axes is None:
        row = col = factor_features(present(a.diag))
        scale_g, scale_m = diag_scales(fs, present(a.diag))
    else:
        row, col = factor_features(present(a.row)), factor_features(present(a.col))
        scale_g = scale_m = row_factor(present(a.row), axes) * col_factor(present(a.col))
    vector = vector_features(fs, p, g, a.m, a.v, scale_g, scale_m)
    whole = torch.cat([vector, row.expand(6, *p.shape), col.expand(6, *p.shape)])
    back = torch.tensor(fs.order, device=p.device).argsort()
    return whole[back]


def normalize(f: Tensor, eps: float, dims: Sequence[int] | None = None) -> Tensor:
    """N(f) = f / sqrt(eps + mean f^2), a scalar per channel (axis 0), the mean over `dims` (default: all other axes).

    A 0-d tensor's features have no other axis: each channel is divided by its own magnitude.
    """
    axes = tuple(range(1, f.ndim)) if dims is None else tuple(dims)
    mean = (f * f).mean(axes, keepdim=True) if axes else f * f
    return f * (eps + mean).rsqrt()


def parameter_rms(p: Tensor) -> Tensor:
    """sqrt(mean p^2 + 1e-9), the length that VeLO's and (optionally) CELO2's step is measured in."""
    return ((p * p).mean() + 1e-9).sqrt()


def blocks(shape: Sequence[int], limit: int, region: Block | None = None) -> list[Block]:
    """Rectangular blocks of at most `limit` elements that tile a tensor, or a region of it.

    Leading axes are fixed, one axis is cut evenly, the trailing axes are whole: (50257, 1024) by 16384 gives 16 rows each.
    A block is contiguous if the tensor (and the region in it) is.
    """
    if region is not None:
        start = [s.start for s in region]
        inside = blocks([s.stop - s.start for s in region], limit)
        return [tuple(slice(s.start + o, s.stop + o) for s, o in zip(b, start, strict=True)) for b in inside]
    if math.prod(shape) == 0:
        return []
    cut, inner = len(shape), 1
    while cut > 0 and inner * shape[cut - 1] <= limit:
        cut, inner = cut - 1, inner * shape[cut - 1]
    whole = [slice(0, n) for n in shape[cut:]]
    if cut == 0:
        return [tuple(whole)]
    pieces = math.ceil(shape[cut - 1] / max(1, limit // inner))
    edges = [shape[cut - 1] * i // pieces for i in range(pieces + 1)]
    heads: list[Block] = [()]
    for n in shape[: cut - 1]:
        heads = [(*head, slice(i, i + 1)) for head in heads for i in range(n)]
    return [(*head, slice(lo, hi), *whole) for head in heads for lo, hi in itertools.pairwise(edges)]


def part(x: Tensor, block: Block) -> Tensor:
    """The piece of x that belongs to a block; x may have leading channel axes and axes of size 1, which stay whole."""
    lead = x.ndim - len(block)
    sizes = x.shape[lead:]
    return x[(slice(None),) * lead + tuple(s if n > 1 else slice(0, 1) for s, n in zip(block, sizes, strict=True))]


def wide_type(device: torch.device) -> torch.dtype:
    """The type for sums over a whole tensor: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
