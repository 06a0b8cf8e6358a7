"""The exact gradient of a short unroll, by differentiating through every inner step.

The step is that of `batched`, written without writing in place and for meta-weights that all particles share. Exact for one
truncation; what a step does to losses beyond it is not seen, and over long unrolls such gradients explode (Metz et al. 2019).
Its noise is a hundredth of that of a few dozen perturbations, so it is what the first minutes of a meta-training want.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..features import BASE_DECAYS, SMALL_FC, Decays, effective_decay, factor_features, safe_rsqrt, time_features
from ..models.mlp import MLP
from .batched import EXP_MULT, STEP_MULT, State, axes_of, signals, split
from .inner import Instances
from .layout import Layout


def weights_of(theta: Tensor, hidden: tuple[int, ...]) -> tuple[MLP, Decays]:
    """A flat vector (D,) as the arguments of `small_fc_step`, differentiable."""
    weights, biases, offsets = split(theta[None], hidden)
    o = offsets[0]
    momentum, rms, adafactor = BASE_DECAYS
    decays = Decays(effective_decay(momentum, o[:3]), effective_decay(rms, o[3]), effective_decay(adafactor, o[4:]))
    return MLP(tuple(w[0] for w in weights), tuple(b[0] for b in biases)), decays


def step(
    rows: Tensor, g: Tensor, state: State, mlp: MLP, decays: Decays, layout: Layout, lr: Tensor | float = 1.0,
    by_signal: bool = False,
) -> tuple[Tensor, State]:  # fmt: skip
    """One step of every particle, (n, size) and its state after it; pure, all particles with the same meta-weights."""
    n, blend = len(rows), torch.lerp
    square = g * g
    m = blend(state.m, g[:, None], (1 - decays.momentum)[:, None])
    v = blend(state.v, square, 1 - decays.rms)
    row, col = [], []
    for piece, r, c in zip(layout.matrices, state.row, state.col, strict=True):
        axes, q = axes_of(piece), square[:, piece.where].reshape(n, *piece.shape)
        b = (1 - decays.adafactor).reshape(3, *(1,) * len(piece.shape))
        row.append(blend(r, q.mean(axes.r + 1, keepdim=True)[:, None] + 1e-30, b))
        col.append(blend(c, q.mean(axes.c + 1, keepdim=True)[:, None] + 1e-30, b))
    diag = blend(state.diag, square[:, None, layout.factored :] + 1e-30, (1 - decays.adafactor)[:, None])
    after = State(m, v, row, col, diag, state.t + 1)
    x = channels(rows, g, after, layout)  # (28, n, size)
    first, last = mlp.weights[0], len(mlp.weights) - 1
    constant = mlp.biases[0][:, None] + first[:, SMALL_FC.size :] @ time_features(state.t).mT  # (h, n)
    hidden = (first[:, list(SMALL_FC.order)] @ x.flatten(1)).unflatten(1, (n, -1)) + constant[..., None]
    hidden = hidden.flatten(1)
    for i in range(1, last + 1):
        hidden = torch.addmm(mlp.biases[i][:, None], mlp.weights[i], hidden.relu())
    direction, magnitude = hidden.unflatten(1, (n, -1))
    if by_signal:
        lr = lr * signals(after, state.t, decays.momentum[0], decays.rms, layout)
    return rows - (STEP_MULT * lr) * direction * torch.exp(EXP_MULT * magnitude), after


def channels(rows: Tensor, g: Tensor, a: State, layout: Layout) -> Tensor:
    """All features, normalised, (28, n, size), in the order of `SMALL_FC.order`."""
    n = len(rows)
    s = (a.v + SMALL_FC.rms_eps).rsqrt()
    scale, sides = [], []
    for piece, row, col in zip(layout.matrices, a.row, a.col, strict=True):
        rf = safe_rsqrt(row / (row.mean(axes_of(piece).c + 2, keepdim=True) + 1e-9))
        scale.append((rf * safe_rsqrt(col)).flatten(2))
        both = [factor_features(x.movedim(1, 0)).expand(6, n, *piece.shape) for x in (row, col)]
        sides.append(torch.cat(both).flatten(2))
    diag = factor_features(a.diag.movedim(1, 0))
    scale_g = torch.cat([*scale, safe_rsqrt(a.diag + 1e-9)], 2).movedim(1, 0)
    scale_m = torch.cat([*scale, (a.diag + SMALL_FC.diag_eps).rsqrt()], 2).movedim(1, 0)
    m = a.m.movedim(1, 0)  # (3, n, size)
    vector = [g[None], rows[None], m, a.v[None], m * s, s[None], g * scale_g, m * scale_m]
    x = torch.cat([*vector, torch.cat([*sides, torch.cat([diag, diag])], 2)])
    # Back to the elements as a product with the tensors' indicator: a gather's gradient is slow.
    return x * ((layout.mean(x * x) + SMALL_FC.norm_eps).rsqrt() @ layout.member.mT.to(x.dtype))


def unroll(
    theta: Tensor, rows: Tensor, state: State, instances: Instances, batches: Sequence[Sequence[Tensor]],
    hidden: tuple[int, ...] = (32, 32), lr: Callable[[Tensor], Tensor | float] = lambda t: 1.0,
    by_signal: bool = False,
) -> tuple[Tensor, Tensor, State]:  # fmt: skip
    """(losses (steps, n) before each step, rows, state after the last); all differentiable in theta. lr: of steps done (n,)."""
    mlp, decays = weights_of(theta, hidden)
    losses = []
    rows = rows if rows.requires_grad else rows.detach().requires_grad_()
    for batch in batches:
        loss = instances.losses(rows, batch)
        (g,) = torch.autograd.grad(loss.sum(), rows, create_graph=True)
        losses.append(loss)
        rows, state = step(rows, g, state, mlp, decays, instances.layout, lr(state.t), by_signal)
    return torch.stack(losses), rows, state


def detached(state: State) -> State:
    """The same numbers without their history."""
    cut = [x.detach() for x in state.tensors()]
    k = len(state.row)
    return State(cut[0], cut[1], cut[2 : 2 + k], cut[2 + k : 2 + 2 * k], cut[-2], cut[-1])
