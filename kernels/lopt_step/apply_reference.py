"""The apply pass of the learned optimizers in NumPy: what is right, and realistic inputs to try the kernels on.

    x   = features of the element, 6 of its row, 6 of its column, each divided by its root mean square over the tensor
    o   = w3 relu(w2 relu(w1 x + b1) + b2) + b3
    out = shrink p - step_scale o_0 exp(exp_mult o_1)

Several tensors at once, shapes of ViT-B/16 and GPT-2 at a sixth of their width, laid out as docs/lopt-plan.md says: arrays p,
g, out, m, v and the moments hold all tensors end to end, and the plan's addresses are bytes into them. Each kernel's
reference.py names its `Network`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

SHAPES = ((384, 128), (128,), (128, 128), (512, 128), (128, 512), (512,), (128, 3, 16, 16), (1024, 128))
SIDE = 256  # of a tile

Array = np.ndarray[Any, Any]


class Network(NamedTuple):
    """What differs between the optimizers; see FeatureSet in lopt/features.py."""

    hidden: int
    extra: bool  # VeLO's and CELO2's two additional features
    own: bool  # a network for each tensor
    rms_eps: float
    diag_eps: float
    norm_eps: float
    bound: float = math.inf  # of a gradient

    @property
    def size(self) -> int:
        return 30 if self.extra else 28


class View(NamedTuple):
    """A contiguous tensor as (outer, x, mid, y, z): x and y are its two largest axes, of equal ones the later."""

    outer: int
    x: int
    mid: int
    y: int
    z: int
    factored: bool
    row_is_slow: bool  # R keeps x

    @staticmethod
    def of(shape: Sequence[int]) -> View:
        if len(shape) < 2:
            return View(1, 1, 1, math.prod(shape), 1, False, False)
        c, r = sorted(range(len(shape)), key=lambda axis: (shape[axis], axis))[-2:]
        i, j = sorted((c, r))
        sizes = math.prod(shape[:i]), shape[i], math.prod(shape[i + 1 : j]), shape[j], math.prod(shape[j + 1 :])
        return View(*sizes, True, r > c)

    @property
    def shape(self) -> tuple[int, ...]:
        return self[:5]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the arrays that hold a tensor; below two dimensions the fast moment is D."""
        n, (outer, x, mid, y, z) = self.shape, self.shape
        slow = (3, outer, x, mid, 1, z) if self.factored else (0,)
        return {"p": n, "g": n, "m": (3, *n), "v": n, "slow": slow, "fast": (3, outer, 1, mid, y, z)}


def inputs(net: Network, size: Sequence[Sequence[int]] | None = None, seed: int = 0) -> dict[str, Any]:
    """Arguments in the kernel's order. Moments are those of a few hundred steps of gradients with uneven rows and columns.

    size: shapes of the tensors; None for SHAPES.
    """
    views = [View.of(shape) for shape in size or SHAPES]
    r = np.random.default_rng(seed)
    tensors = [_tensor(r, v) for v in views]
    arrays = {k: np.concatenate([t[k].ravel() for t in tensors]).astype(np.float32) for k in views[0].shapes()}
    mean_square = [
        np.mean(features(net, v, *t.values()) ** 2, axis=(1, 2, 3, 4, 5)) for v, t in zip(views, tensors, strict=True)
    ]
    network, bias = _weights(net, r, len(views))
    table = tiles(views)
    rates = np.tile(np.float32([1, 1e-2, 1e-3, 0.999, 0, 1]), (len(views), 1))  # enum Rate of kernels/lopt_step/plan.h
    stride = network.shape[1] if net.own else 0
    return {
        "p": arrays["p"], "g": arrays["g"], "out": np.full_like(arrays["p"], np.nan), "m": arrays["m"], "v": arrays["v"],
        "slow": arrays["slow"], "fast": arrays["fast"], "tensors": records(views, table), "tiles": table,
        "tile_count": np.int64(len(table)), "rates": rates, "mean_square": np.stack(mean_square).astype(np.float32),
        "bias": bias, "network": network, "network_stride": np.int64(stride), "bound": np.float32(net.bound),
        "replace_nan": np.int32(0), "threads": np.int32(1),
    }  # fmt: skip


def expected(net: Network, arguments: dict[str, Any]) -> dict[str, Array]:
    """The right `out`, computed in float64 and rounded once."""
    outs = []
    for i, (view, parts) in enumerate(tensors_of(arguments)):
        _, step_scale, exp_mult, shrink, _, _ = arguments["rates"][i].astype(np.float64)
        own = arguments["network"][i] if net.own else arguments["network"]
        w1, w2, b2, w3, b3 = (w.astype(np.float64) for w in layers(net, own))
        norm = _rsqrt(net.norm_eps + arguments["mean_square"][i].astype(np.float64))
        x = features(net, view, *parts).reshape(net.size, -1) * norm[:, None]
        h = np.maximum(w1.T @ x + arguments["bias"][i].astype(np.float64)[:, None], 0)
        h = np.maximum(w2.T @ h + b2[:, None], 0)
        o = w3 @ h + b3[:, None]
        outs.append(shrink * parts[0].ravel() - step_scale * o[0] * np.exp(exp_mult * o[1]))
    return {"out": np.concatenate(outs).astype(np.float32)}


def work(net: Network, arguments: dict[str, Any]) -> float:
    """Floating-point operations of the network with rows and columns separated, 2 (16 + 32 + 2) 32 an element of small_fc."""
    return 2.0 * (net.size - 12 + net.hidden + 2) * net.hidden * np.asarray(arguments["p"]).size


def tensors_of(arguments: dict[str, Any]) -> Iterator[tuple[View, list[Array]]]:
    """Each tensor's view and its p, g, m, v, slow, fast, as the plan's addresses say."""
    for row in arguments["tensors"]:
        view = View(*(int(x) for x in row[8:13]), bool(row[13] & 1), bool(row[13] & 2))
        places = dict(zip(("p", "g", "m", "v", "slow", "fast"), row[[0, 1, 3, 4, 5, 6]] // 4, strict=True))
        shapes = view.shapes().items()
        yield view, [arguments[k][places[k] :][: math.prod(n)].reshape(n).astype(np.float64) for k, n in shapes]


def layers(net: Network, w: Array) -> list[Array]:
    """w1 (features, h), w2 (in, out), b2, w3 (2, h), b3 of the packed network."""
    h = net.hidden
    sizes = np.cumsum([net.size * h, h * h, h, 2 * h])
    w1, w2, b2, w3, b3 = np.split(w, sizes)
    return [w1.reshape(net.size, h), w2.reshape(h, h), b2, w3.reshape(2, h), b3]


# ---- the plan ----------------------------------------------------------------------------------------------------


def records(views: Sequence[View], table: Array) -> Array:
    """The plan's `tensors`: float32, contiguous; addresses are bytes into the arrays."""
    rows, at = [], dict.fromkeys(views[0].shapes(), 0)
    for i, view in enumerate(views):
        own, n = np.flatnonzero(table[:, 0] == i), math.prod(view.shape)
        p, g, m, v, slow, fast = (4 * x for x in at.values())
        flags = view.factored + 2 * view.row_is_slow
        strides = [1, 1, 1, 1, 1, n, *[0, 0, 0, 0, 0, 1] * 3]
        rows.append([p, g, p, m, v, slow, fast, n, *view.shape, flags, 0, 0, 0, -1, -1, own[0], len(own), *strides])
        at = {k: at[k] + math.prod(shape) for k, shape in view.shapes().items()}
    return np.array(rows, np.int64)


def tiles(views: Sequence[View]) -> Array:
    """The plan's `tiles`: squares of SIDE at most."""
    rows = []
    for i, view in enumerate(views):
        run, width = view.y * view.z, SIDE if view.factored else SIDE * SIDE
        for b in range(view.outer * view.mid):
            for ix, x in enumerate(range(0, view.x, SIDE)):
                for ij, j in enumerate(range(0, run, width)):
                    rows.append((i, b, b + 1, x, min(x + SIDE, view.x), j, min(j + width, run), ix, ij))
    return np.array(rows, np.int64)


# ---- mathematics -------------------------------------------------------------------------------------------------


def features(net: Network, view: View, p: Array, g: Array, m: Array, v: Array, slow: Array, fast: Array) -> Array:
    """(28 or 30, outer, x, mid, y, z) in the reference's order, not normalised."""
    s = _rsqrt(v + net.rms_eps)
    if not view.factored:
        row = col = fast
        scale_g, scale_m = _safe_rsqrt(fast + 1e-9), _rsqrt(fast + net.diag_eps)
    else:
        row, col = (slow, fast) if view.row_is_slow else (fast, slow)
        mean = row.mean(2 if view.row_is_slow else 4, keepdims=True)  # over c: x, or y
        scale_g = scale_m = _safe_rsqrt(row / (mean + 1e-9)) * _safe_rsqrt(col)
    wide = [np.broadcast_to(x, (3, *view.shape)) for x in (row, col, _rsqrt(row + 1e-8), _rsqrt(col + 1e-8))]
    clipped = [np.clip(g, -0.1, 0.1)[None]] if net.extra else []
    scaled = [(g * s)[None]] if net.extra else []
    return np.concatenate(
        [g[None], *clipped, p[None], m, v[None], m * s, s[None], g * scale_g, *scaled, *wide, m * scale_m]
    )


def _tensor(r: np.random.Generator, view: View) -> dict[str, Array]:
    """One tensor's arrays in float64."""
    uneven = np.exp(r.standard_normal((1, view.x, 1, 1, 1))) * np.exp(r.standard_normal((1, 1, 1, view.y, 1)))
    g = 1e-2 * uneven * r.standard_normal(view.shape)
    q, decays = g * g, np.array([[1.0, 0.5], [0.5, 0.1], [0.1, 0.03]]).T.reshape(2, 3, 1, 1, 1, 1, 1)
    m = g * decays[1] * (1 + 0.3 * r.standard_normal((3, *view.shape)))
    slow = decays[0] * q.mean(3, keepdims=True) if view.factored else np.zeros(0)
    fast = decays[0] * q.mean(1, keepdims=True)
    return {"p": 0.02 * r.standard_normal(view.shape), "g": g, "m": m, "v": q * r.uniform(0.1, 2, view.shape), "slow": slow,
            "fast": fast}  # fmt: skip


def _weights(net: Network, r: np.random.Generator, tensors: int) -> tuple[Array, Array]:
    """A random network, packed, (K,), or one for each tensor, (T, K); and a first bias for each tensor."""
    h, stack = net.hidden, (tensors if net.own else 1,)
    w1 = r.standard_normal((*stack, net.size * h)) / np.sqrt(net.size)
    w2, w3 = r.standard_normal((*stack, h * h)) / np.sqrt(h), r.standard_normal((*stack, 2 * h)) / np.sqrt(h)
    b2, b3 = 0.1 * r.standard_normal((*stack, h)), 0.1 * r.standard_normal((*stack, 2))
    packed = np.concatenate([w1, w2, b2, w3, b3], axis=1).astype(np.float32)
    return packed if net.own else packed[0], (0.1 * r.standard_normal((tensors, h))).astype(np.float32)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _safe_rsqrt(x: Array) -> Array:
    return _rsqrt(np.maximum(x, 1e-9))
