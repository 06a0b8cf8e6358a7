"""One tensor's step in plain PyTorch, in place, in blocks: scratch does not grow with the tensor.

Three passes over blocks of about 16 thousand elements, the size at which the activations stay in the second-level cache:
  sums     row and column sums of g^2, then R and C (they need the whole tensor)
  measure  m and v in place; the mean square of every feature over the tensor
  apply    features again, network, p in place
Two exact pieces of algebra make it cheap. A feature is normalised by one scalar, so the scalar goes into a column of W1
(`fold`). Twelve features depend on the row or on the column alone, so their share of the first layer is a vector per row
plus a vector per column, and the large product has 16 inputs instead of 28.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..features import (
    Accumulators,
    Axes,
    Block,
    Decays,
    FeatureSet,
    blocks,
    col_factor,
    diag_scales,
    factor_features,
    part,
    present,
    row_factor,
    vector_features,
    wide_type,
)
from ..models.mlp import MLP

BLOCK = 16384  # elements; 8k to 64k measured within 5 % of each other, scratch is about 500 bytes an element


@dataclass
class Gradient:
    """A gradient read block by block: cast to the state's type, scaled and bounded on the way, zero in a skipped step."""

    tensor: Tensor
    dtype: torch.dtype
    scale: Tensor | float | None = None  # of global clipping, or -1 to maximize
    bound: float | None = None  # clip(g, -bound, bound)
    ok: Tensor | None = None  # () bool: False in a step that is skipped
    replace_nan: bool = False

    def __getitem__(self, block: Block) -> Tensor:
        g = self.tensor[block].to(self.dtype)
        g = g.nan_to_num() if self.replace_nan else g
        g = g if self.scale is None else g * self.scale
        g = g if self.bound is None else g.clamp(-self.bound, self.bound)
        return g if self.ok is None else torch.where(self.ok, g, 0)  # last: the scale may be NaN too


class Factors(NamedTuple):
    """rf and cf of one tensor; None below two dimensions, where they would be as large as the tensor."""

    row: Tensor | None  # (3, *shape), size 1 at axis r
    col: Tensor | None


class Member(NamedTuple):
    """One tensor of a step, with all that is constant over it."""

    param: Tensor
    grad: Gradient
    accumulators: Accumulators
    axes: Axes | None
    step_scale: float | Tensor  # o_0 is multiplied by it,
    exp_mult: float  # and o_1 by this
    shrink: float | Tensor  # 1 - lr * weight decay
    shrink_after: bool


class Folded(NamedTuple):
    """A network with normalisers (and constants) folded in; W1 is split by where its inputs come from."""

    vector: Tensor  # (h, 16 or 18)
    row: Tensor | None  # (h, 6); None below two dimensions
    col: Tensor  # (h, 6)
    bias: Tensor  # (h,)
    tail: MLP  # the layers after the first


def ema_(x: Tensor, y: Tensor, b: Tensor) -> None:
    """x <- b x + (1 - b) y, in place."""
    b = b.reshape(b.shape + (1,) * (x.ndim - b.ndim))
    x.mul_(b).add_((1 - b) * y)


def update_factors_(a: Accumulators, g: Gradient, b: Tensor, axes: Axes, limit: int = BLOCK) -> Factors:
    """R and C of a factored tensor in place. Sums run in float64 where the device has it: there can be 1e8 terms."""
    wide = wide_type(g.tensor.device)
    shape = g.tensor.shape
    row, col = present(a.row), present(a.col)
    row_sum, col_sum = torch.zeros_like(row[0], dtype=wide), torch.zeros_like(col[0], dtype=wide)
    for block in blocks(shape, limit):
        q = g[block].square()
        part(row_sum, block).add_(q.sum(axes.r, keepdim=True))
        part(col_sum, block).add_(q.sum(axes.c, keepdim=True))
    ema_(row, (row_sum / shape[axes.r]).to(row.dtype) + 1e-30, b)
    ema_(col, (col_sum / shape[axes.c]).to(col.dtype) + 1e-30, b)
    return Factors(row_factor(row, axes), col_factor(col))


def advance_block_(a: Accumulators, g: Tensor, decays: Decays, block: Block) -> None:
    """m, v and (below two dimensions) D of one block in place."""
    ema_(part(a.m, block), g, decays.momentum)
    ema_(a.v[block], g * g, decays.rms)
    if a.diag is not None:
        ema_(part(a.diag, block), g * g + 1e-30, decays.adafactor)


def advance_(a: Accumulators, g: Gradient, decays: Decays, axes: Axes | None, limit: int = BLOCK) -> None:
    """All accumulators of a tensor in place, for a step that needs no features."""
    if axes is not None:
        update_factors_(a, g, decays.adafactor, axes, limit)
    for block in blocks(a.v.shape, limit):
        advance_block_(a, g[block], decays, block)


def measure_(
    fs: FeatureSet, p: Tensor, g: Gradient, a: Accumulators, factors: Factors, decays: Decays,
    limit: int = BLOCK, region: Block | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """m, v (and D) in place; mean square of every feature over the tensor (or a region), (28 or 30,), reference's order.

    Also returns the features of the vector part if one block holds it all, so that they need no second look.
    """
    wide = wide_type(p.device)
    vector_sum = torch.zeros(len(fs.vector), device=p.device, dtype=wide)
    diag_sum = torch.zeros(6, device=p.device, dtype=wide)
    tiles, x, n = blocks(p.shape, limit, region), None, 0
    for block in tiles:
        gb = g[block]
        n += gb.numel()
        advance_block_(a, gb, decays, block)
        if a.diag is not None:
            diag_sum += _sum_of_squares(factor_features(part(a.diag, block)))
        x = block_features(fs, p[block].to(g.dtype), gb, a, factors, block)
        vector_sum += _sum_of_squares(x)
    mean = torch.empty(fs.size, device=p.device, dtype=wide)
    mean[list(fs.vector)] = vector_sum / n
    for places, moment in ((fs.row, a.row), (fs.col, a.col)):
        here = moment if moment is None or region is None else part(moment, region)
        mean[list(places)] = diag_sum / n if here is None else _mean_square(factor_features(here))
    return mean.to(g.dtype), x if len(tiles) == 1 else None


def _sum_of_squares(x: Tensor) -> Tensor:
    """Per channel, (k, ...) -> (k,), in the wide type. Within a block `vecdot` sums pairwise; `vector_norm` does not, and in
    a tensor of three long rows that moved a parameter by 2e-5 of its step."""
    x = x.reshape(len(x), -1)
    return torch.linalg.vecdot(x, x).to(wide_type(x.device))


def _mean_square(x: Tensor) -> Tensor:
    return _sum_of_squares(x) / (x.numel() // len(x))


def block_features(fs: FeatureSet, p: Tensor, g: Tensor, a: Accumulators, factors: Factors, block: Block) -> Tensor:
    """`vector_features` of one block, (16 or 18, *block)."""
    if factors.row is None or factors.col is None:
        scale_g, scale_m = diag_scales(fs, part(present(a.diag), block))
    else:
        scale_g = scale_m = part(factors.row, block) * part(factors.col, block)
    return vector_features(fs, p, g, part(a.m, block), a.v[block], scale_g, scale_m)


def fold(fs: FeatureSet, mlp: MLP, mean_square: Tensor, constant: Tensor | None, factored: bool) -> Folded:
    """N(f_i) = f_i / sqrt(eps + mean f_i^2) goes into column i of W1; inputs that are `constant` over the tensor into b1."""
    w, bias = mlp.weights[0], mlp.biases[0]
    if constant is not None:
        bias = bias + w[:, fs.size :] @ constant
    w = w[:, : fs.size] * (fs.norm_eps + mean_square).rsqrt()
    vector, row, col = w[:, list(fs.vector)], w[:, list(fs.row)], w[:, list(fs.col)]
    tail = MLP(mlp.weights[1:], mlp.biases[1:])
    return Folded(vector, row, col, bias, tail) if factored else Folded(vector, None, row + col, bias, tail)


def scale_outputs(mlp: MLP, scales: Sequence[Tensor | float]) -> MLP:
    """The network with output j multiplied by scales[j]; outputs beyond them are dropped."""
    n = len(scales)
    factor = torch.stack([torch.as_tensor(s, device=mlp.biases[-1].device, dtype=mlp.biases[-1].dtype) for s in scales])
    weight, bias = mlp.weights[-1][:n] * factor[:, None], mlp.biases[-1][:n] * factor
    return replace(mlp, weights=(*mlp.weights[:-1], weight), biases=(*mlp.biases[:-1], bias))


def network(net: Folded, x: Tensor, a: Accumulators, block: Block) -> Tensor:
    """The folded network on one block, (outputs, n): the first layer is a product of 16 inputs plus a row and a column."""
    shape = (len(net.bias), *x.shape[1:])
    moment = present(a.diag if net.row is None else a.col)
    hidden = _project(net.col, factor_features(part(moment, block)))
    bias = net.bias.reshape(-1, *(1,) * (len(shape) - 1))
    if net.row is not None:
        bias = bias + _project(net.row, factor_features(part(present(a.row), block)))
    hidden = hidden + bias
    y = hidden.reshape(shape[0], -1).addmm_(net.vector, x.reshape(len(x), -1))
    for w, b in zip(net.tail.weights, net.tail.biases, strict=True):
        y = torch.addmm(b[:, None], w, y.relu_())
    return y


def _project(w: Tensor, x: Tensor) -> Tensor:
    """(h, k) on (k, *shape) -> (h, *shape)."""
    return (w @ x.reshape(len(x), -1)).reshape(len(w), *x.shape[1:])


def write_(
    p: Tensor, block: Block, step: Tensor, shrink: float | Tensor, shrink_after: bool = False, ok: Tensor | None = None
) -> None:
    """p <- shrink p - step (decoupled weight decay on the old value), or shrink (p - step); rounds once for half types."""
    view = p[block]
    old = view.to(step.dtype)
    new = (old - step) * shrink if shrink_after else old * shrink - step
    view.copy_(new if ok is None else torch.where(ok, new, old))


def apply_(
    fs: FeatureSet, p: Tensor, g: Gradient, a: Accumulators, factors: Factors, net: Folded, axes: Axes | None,
    kept: Tensor | None, shrink: float | Tensor, shrink_after: bool, limit: int = BLOCK,
) -> None:  # fmt: skip
    """p <- shrink p - o_0 exp(o_1), block by block; the scales of the outputs are already in the network."""
    for block in blocks(p.shape, limit):
        x = block_features(fs, p[block].to(g.dtype), g[block], a, factors, block) if kept is None else kept
        o = network(net, x, a, block)
        write_(p, block, (o[0] * o[1].exp()).reshape(x.shape[1:]), shrink, shrink_after, g.ok)
