"""The exact gradient of a short unroll, by differentiating through every inner step.

`torch.func.vmap` over `small_fc_step`, whose twin in `batched` is faster but writes in place. Exact for one truncation; what a
step does to losses beyond it is not seen, and over long unrolls such gradients explode (Metz et al. 2019). For short horizons
and for the first minutes of a meta-training.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..features import BASE_DECAYS, Accumulators, Decays, effective_decay
from ..models.mlp import MLP
from ..optim.small_fc import small_fc_step
from .batched import State, split
from .inner import Instances
from .layout import Layout, Piece


def weights_of(theta: Tensor, hidden: tuple[int, ...]) -> tuple[MLP, Decays]:
    """A flat vector (D,) as the arguments of `small_fc_step`, differentiable."""
    weights, biases, offsets = split(theta[None], hidden)
    o = offsets[0]
    momentum, rms, adafactor = BASE_DECAYS
    decays = Decays(effective_decay(momentum, o[:3]), effective_decay(rms, o[3]), effective_decay(adafactor, o[4:]))
    return MLP(tuple(w[0] for w in weights), tuple(b[0] for b in biases)), decays


def step(rows: Tensor, g: Tensor, state: State, mlp: MLP, decays: Decays, layout: Layout) -> tuple[Tensor, State]:
    """One step of every particle, (n, size) and its state after it; pure, all particles with the same meta-weights."""
    p_out, m_out, v_out, diag_out = [], [], [], []
    row_out, col_out = [], []
    for piece in layout.pieces:
        p, moments = one_tensor(rows, g, state, piece, mlp, decays, layout)
        p_out.append(p.reshape(len(rows), -1))
        m_out.append(moments[0].reshape(len(rows), 3, -1))
        v_out.append(moments[1].reshape(len(rows), -1))
        if piece.axes is None:
            diag_out.append(moments[2].reshape(len(rows), 3, -1))
        else:
            row_out.append(moments[2])
            col_out.append(moments[3])
    diag = torch.cat(diag_out, 2) if diag_out else state.diag
    after = State(torch.cat(m_out, 2), torch.cat(v_out, 1), row_out, col_out, diag, state.t + 1)
    return torch.cat(p_out, 1), after


def one_tensor(
    rows: Tensor, g: Tensor, state: State, piece: Piece, mlp: MLP, decays: Decays, layout: Layout
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One tensor of every particle: (p, (m, v, diag) or (m, v, row, col)) after the step."""
    k, shape, axes = piece.where, piece.shape, piece.axes
    view = lambda x: x[..., k].reshape(*x.shape[:-1], *shape)  # noqa: E731
    if axes is None:
        own = slice(piece.start - layout.factored, piece.stop - layout.factored)
        diag = state.diag[..., own].reshape(len(rows), 3, *shape)
        moments: tuple[Tensor, ...] = (view(state.m), view(state.v), diag)
    else:
        i = layout.matrices.index(piece)
        moments = (view(state.m), view(state.v), state.row[i], state.col[i])

    def single(p: Tensor, g: Tensor, t: Tensor, *x: Tensor) -> tuple[Tensor, ...]:
        a = Accumulators(x[0], x[1], None, None, x[2]) if axes is None else Accumulators(x[0], x[1], x[2], x[3], None)
        p, a = small_fc_step(p, g, a, t, mlp, decays, axes)
        return (p, *(y for y in a if y is not None))

    p, *after = torch.func.vmap(single)(view(rows), view(g), state.t, *moments)
    return p, tuple(after)


def unroll(
    theta: Tensor, rows: Tensor, state: State, instances: Instances, batches: Sequence[Sequence[Tensor]],
    hidden: tuple[int, ...] = (32, 32),
) -> tuple[Tensor, Tensor, State]:  # fmt: skip
    """(losses (steps, n) before each step, rows, state after the last); all differentiable in theta."""
    mlp, decays = weights_of(theta, hidden)
    losses = []
    rows = rows if rows.requires_grad else rows.detach().requires_grad_()
    for batch in batches:
        loss = instances.losses(rows, batch)
        (g,) = torch.autograd.grad(loss.sum(), rows, create_graph=True)
        losses.append(loss)
        rows, state = step(rows, g, state, mlp, decays, instances.layout)
    return torch.stack(losses), rows, state


def detached(state: State) -> State:
    """The same numbers without their history."""
    cut = [x.detach() for x in state.tensors()]
    k = len(state.row)
    return State(cut[0], cut[1], cut[2 : 2 + k], cut[2 + k : 2 + 2 * k], cut[-2], cut[-1])
