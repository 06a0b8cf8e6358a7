"""CELO2: a learned direction, made orthogonal; AdamW for vectors and embeddings.

arXiv 2602.19142. For a tensor of two and more dimensions, with 30 features f of p, g and its accumulators:

    o = MLP(N(f)),  u = o_0 exp(exp_mult o_1)         N over the last two axes, epsilon 1e-9
    u = N(NewtonSchulz(u)) rms_mult                   without Newton-Schulz: "celo2-base"
    p <- p - lr (u + weight_decay p)

lr is the root mean square of a step. No schedule inside: the official recipe warms lr up and lets it fall with a cosine.
Below: the mathematics on whole tensors (pure), the same in blocks, the class.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..features import CELO2 as FEATURES
from ..features import (
    Accumulators,
    Axes,
    Block,
    Decays,
    accumulate,
    blocks,
    factor_features,
    factored_axes,
    features,
    init_accumulators,
    normalize,
    parameter_rms,
    part,
    present,
    wide_type,
)
from ..models.celo2 import CELO2Weights
from ..models.mlp import MLP
from ..step import cpu, dispatch
from ..step.reference import (
    BLOCK,
    Factors,
    Gradient,
    Member,
    advance_,
    advance_block_,
    block_features,
    ema_,
    fold,
    measure_,
    network,
    scale_outputs,
    update_factors_,
    write_,
)
from .base import LearnedOptimizer, Slot, accumulators, count_, hold, rates, state_type

DECAYS = ((0.9, 0.99, 0.999), 0.95, (0.9, 0.99, 0.999))  # momentum, rms, adafactor
ADAM_BETAS, ADAM_EPS = (0.9, 0.95), 1e-8
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
GRADIENT_BOUND = 1000.0


# ---- mathematics: pure functions on whole tensors ----------------------------------------------------------------


def newton_schulz(x: Tensor, steps: int = 5, eps: float = 1e-8) -> Tensor:
    """The nearest (semi-)orthogonal matrix to x, roughly: singular values between about 0.7 and 1.2. Last two axes.

    x <- c0 x + (c1 A + c2 A A) x with A = x x^T, a quintic whose slope at 0 is steep (Jordan et al., Muon).
    """
    c0, c1, c2 = NEWTON_SCHULZ
    y = x.mT if x.shape[-2] > x.shape[-1] else x
    y = y / (torch.linalg.vector_norm(y, dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        a = y @ y.mT
        y = c0 * y + (c1 * a + c2 * (a @ a)) @ y
    return y.mT if x.shape[-2] > x.shape[-1] else y


def last_two(x: Tensor) -> tuple[int, ...]:
    """The axes over which CELO2 normalises."""
    return tuple(range(-min(x.ndim, 2), 0))


def celo2_step(
    p: Tensor, g: Tensor, a: Accumulators, mlp: MLP, axes: Axes | None, decays: Decays, lr: float | Tensor = 1e-3,
    weight_decay: float = 0.0, exp_mult: float = 0.0, rms_mult: float = 1.0, orthogonalize: bool = True,
    scale_by_parameter: bool = False,
) -> tuple[Tensor, Accumulators]:  # fmt: skip
    """One step of one tensor by the learned rule. Pure, differentiable, vmap-able."""
    g = g.clamp(-GRADIENT_BOUND, GRADIENT_BOUND)
    a = accumulate(a, g, decays, axes)
    f = normalize(features(FEATURES, p, g, a, axes), FEATURES.norm_eps, last_two(p))
    o = mlp(f.reshape(FEATURES.size, -1))
    u = (o[0] * torch.exp(exp_mult * o[1])).reshape(p.shape)
    u = u * parameter_rms(p) if scale_by_parameter else u
    u = newton_schulz(u) if orthogonalize and p.ndim >= 2 else u
    u = normalize(u[None], FEATURES.norm_eps, last_two(p))[0] * rms_mult
    return p - lr * (u + weight_decay * p), a


def adam_direction(m: Tensor, v: Tensor, t: Tensor) -> Tensor:
    """m / (1 - b1^t) over sqrt(v / (1 - b2^t)) + 1e-8; t: () steps, this one included."""
    t = t.to(torch.float64 if t.device.type != "mps" else torch.float32)
    c1, c2 = ((1 - b**t).to(m.dtype) for b in ADAM_BETAS)
    return (m / c1) / ((v / c2).sqrt() + ADAM_EPS)


# ---- in place, in blocks -----------------------------------------------------------------------------------------


def newton_schulz_(x: Tensor, steps: int = 5, eps: float = 1e-8) -> None:
    """`newton_schulz` in place: beside x only matrices of its shorter side and a strip of columns."""
    c0, c1, c2 = NEWTON_SCHULZ
    y = x.mT if x.shape[-2] > x.shape[-1] else x
    y /= torch.linalg.vector_norm(y, dim=(-2, -1), keepdim=True) + eps
    width = max(1, (1 << 22) // max(1, y[..., 0].numel()))
    for _ in range(steps):
        a = y @ y.mT
        b = c1 * a + c2 * (a @ a)
        for strip in y.split(width, -1):
            strip.copy_(c0 * strip + b @ strip)


def mean_squares(u: Tensor, piece: int = 1 << 18) -> Tensor:
    """Over the last two axes (the last of a vector), kept as ones, in the wide type.

    `vector_norm` copies what it casts, so it gets some 256 thousand elements at a time; in float32 it does not sum pairwise,
    and a million elements would be 1e-5 off.
    """
    kept = u.shape[: -len(last_two(u))]
    flat = u.reshape(math.prod(kept), -1)  # a row is a matrix
    total = torch.zeros(len(flat), device=u.device, dtype=wide_type(u.device))
    rows = max(1, piece // flat.shape[1])
    for own, matrices in zip(total.split(rows), flat.split(rows), strict=True):
        for x in matrices.split(piece, -1):
            own += torch.linalg.vector_norm(x, dim=-1, dtype=total.dtype) ** 2
    return (total / flat.shape[1]).reshape(kept + (1,) * len(last_two(u)))


def direction(p: Tensor, g: Gradient, a: Accumulators, mlp: MLP, decays: Decays, axes: Axes | None) -> Tensor:
    """o_0 exp(o_1) of every element, (*shape) in the state's type; accumulators in place.

    A matrix is normalised as a whole, so its normalisers fold into W1 as they do in small_fc. In more dimensions every
    matrix of the last two axes has its own: many small ones are taken together, features normalised; large ones singly.
    """
    u = torch.empty(p.shape, device=p.device, dtype=g.dtype)
    factors = Factors(None, None) if axes is None else update_factors_(a, g, decays.adafactor, axes)
    if p.ndim > 2 and p.shape[-1] * p.shape[-2] <= BLOCK:
        for block in blocks(p.shape, BLOCK):
            _many_matrices_(u, block, p, g, a, factors, mlp, decays)
        return u
    whole = tuple(slice(0, n) for n in p.shape[-2:])
    for lead in itertools.product(*(range(n) for n in p.shape[:-2])):
        region = (*(slice(i, i + 1) for i in lead), *whole)
        _one_matrix_(u, region, p, g, a, factors, mlp, decays)
    return u


def _one_matrix_(
    u: Tensor, region: Block, p: Tensor, g: Gradient, a: Accumulators, factors: Factors, mlp: MLP, decays: Decays
) -> None:  # fmt: skip
    mean_square, kept = measure_(FEATURES, p, g, a, factors, decays, region=region)
    net = fold(FEATURES, mlp, mean_square, None, a.diag is None)
    for block in blocks(p.shape, BLOCK, region):
        x = block_features(FEATURES, p[block].to(g.dtype), g[block], a, factors, block) if kept is None else kept
        o = network(net, x, a, block)
        u[block] = (o[0] * o[1].exp()).reshape(x.shape[1:])


def _many_matrices_(
    u: Tensor, block: Block, p: Tensor, g: Gradient, a: Accumulators, factors: Factors, mlp: MLP, decays: Decays
) -> None:  # fmt: skip
    gb = g[block]
    advance_block_(a, gb, decays, block)
    vector = block_features(FEATURES, p[block].to(g.dtype), gb, a, factors, block)
    sides = [factor_features(part(present(x), block)).expand(6, *gb.shape) for x in (a.row, a.col)]
    f = normalize(torch.cat([vector, *sides]), FEATURES.norm_eps, (-2, -1))
    first = mlp.weights[0][:, list(FEATURES.order)]  # the channels as they lie here
    o = MLP((first, *mlp.weights[1:]), mlp.biases)(f.reshape(FEATURES.size, -1))
    u[block] = (o[0] * o[1].exp()).reshape(gb.shape)


def directions(
    handle: int | None, slots: Sequence[tuple[Slot, Axes | None]], mlp: MLP, decays: Decays
) -> Iterator[tuple[Slot, Tensor]]:
    """`direction` of each parameter, one after the other, so that one is held at a time; accumulators in place.

    Compiled kernels take those that are one matrix or vector, on one plan.
    """
    members = [Member(s.param, s.grad, accumulators(s.state), axes, -1.0, 1.0, 0.0, False) for s, axes in slots]
    held = cpu.divide(handle, members)[0]
    together = [i for i in held if members[i].param.ndim <= 2]
    if handle is not None and together:
        batch = cpu.Batch.of([members[i] for i in together], decays)
        mean_square, _ = cpu.measure_(handle, batch)
        bias, network = mlp.biases[0].expand(len(together), -1), cpu.pack(FEATURES.size, mlp.weights, mlp.biases)
        for n, i in enumerate(together):
            yield slots[i][0], cpu.direction(handle, batch, n, mean_square, bias, network)
    for i in sorted({*range(len(slots))} - {*together}):
        x = members[i]
        yield slots[i][0], direction(x.param, x.grad, x.accumulators, mlp, decays, x.axes)


class CELO2(LearnedOptimizer):
    """CELO2 as a torch optimizer.

    lr: root mean square of a matrix's step; use a schedule (warm-up, cosine). A number or a one-element tensor.
    weights: meta-weights, see `lopt.models.pretrained`; per group too.
    weight_decay: decoupled, on the parameter before the step, as AdamW's.
    adam_lr_mult: vectors and embeddings take AdamW steps (0.9, 0.95) with lr * adam_lr_mult; a group with
        `is_embedding=True` counts as embeddings. adamw_for_vectors=False gives them the learned rule instead.
    orthogonalize: False is "celo2-base". exp_mult, rms_mult, scale_by_parameter: see the module's docstring.
    max_grad_norm, maximize, layout, nonfinite, backend, config: as in `SmallFCLOpt`.

    State: 16 bytes an element and the row and column moments; 8 bytes an element of vectors and embeddings.
    """

    gradient_bound = GRADIENT_BOUND
    shared_moments = False  # ELO-CELO2: AdamW reads the learned rule's own accumulators

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        weights: str | Path | CELO2Weights | None = None,
        *,
        weight_decay: float = 0.0,
        adam_lr_mult: float = 1.0,
        adamw_for_vectors: bool = True,
        orthogonalize: bool = True,
        exp_mult: float = 0.0,
        rms_mult: float = 1.0,
        scale_by_parameter: bool = False,
        max_grad_norm: float | None = None,
        maximize: bool = False,
        layout: str = "torch",
        nonfinite: str = "skip",
        backend: str = "auto",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "adam_lr_mult": adam_lr_mult, "orthogonalize": orthogonalize,
                    "exp_mult": exp_mult, "rms_mult": rms_mult, "scale_by_parameter": scale_by_parameter,
                    "is_embedding": False, "maximize": maximize}  # fmt: skip
        options = {"nonfinite": nonfinite, "max_grad_norm": max_grad_norm, "adamw_for_vectors": adamw_for_vectors,
                   "backend": dispatch.check(backend), "config": None if config is None else dict(config)}  # fmt: skip
        super().__init__(params, defaults, options=options, group_options={"weights": weights, "layout": layout})

    def prepare_group(self, values: dict[str, Any]) -> dict[str, Any]:
        factored_axes((1, 1), values["layout"])
        return {**values, "weights": self.load_once(CELO2Weights, values["weights"])}

    def takes_adamw(self, p: Tensor, group: Mapping[str, Any]) -> bool:
        return self.options["adamw_for_vectors"] and (p.ndim <= 1 or group["is_embedding"])

    def init_state(self, p: Tensor, group: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        step = {"step": torch.zeros((), dtype=torch.int64, device=p.device)}
        if self.takes_adamw(p, group) and not self.shared_moments:
            zeros = {k: torch.zeros(p.shape, device=p.device, dtype=state_type(p)) for k in ("exp_avg", "exp_avg_sq")}
            return {**step, **zeros}
        a = init_accumulators(p.shape, factored_axes(p.shape, values["layout"]), p.device, state_type(p))
        return {**step, **{k: x for k, x in a._asdict().items() if x is not None}}

    def update(
        self, group: dict[str, Any], values: dict[str, Any], slots: list[Slot], ok: Tensor | None,
        device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        lr, shrink = rates(group, device)
        mlp = scale_outputs(self.placed(values["weights"], device, dtype).mlp, (1.0, group["exp_mult"]))
        decays = hold(Decays(*(torch.tensor(b, device=device, dtype=torch.float32).to(dtype) for b in DECAYS)), ok)
        handle = dispatch.kernels(self.options["backend"], FEATURES, mlp, device, dtype, self.options["config"])
        count_(slots, ok)
        learned: list[tuple[Slot, Axes | None]] = []
        for s in (s for s in slots if s.param.numel()):
            axes = factored_axes(s.param.shape, values["layout"])
            if self.takes_adamw(s.param, group):
                self._adamw_(s, axes, decays, lr * group["adam_lr_mult"], group["weight_decay"])
            else:
                learned.append((s, axes))
        for s, u in directions(handle, learned, mlp, decays):
            self._write_(s, u, lr, shrink, group)

    def _write_(self, s: Slot, u: Tensor, lr: Any, shrink: Any, group: Mapping[str, Any]) -> None:
        """p <- shrink p - lr N(NewtonSchulz(u)) rms_mult; u is used up."""
        p = s.param
        if group["scale_by_parameter"]:
            u *= ((torch.linalg.vector_norm(p, dtype=u.dtype) ** 2) / p.numel() + 1e-9).sqrt()
        if group["orthogonalize"] and p.ndim >= 2:
            newton_schulz_(u)
        u *= (mean_squares(u).to(u.dtype) + FEATURES.norm_eps).rsqrt() * group["rms_mult"] * lr
        for block in blocks(p.shape, BLOCK):
            write_(p, block, u[block], shrink, ok=s.grad.ok)

    def _adamw_(self, s: Slot, axes: Axes | None, decays: Decays, lr: Any, weight_decay: float) -> None:
        """AdamW; its betas are the learned rule's first momentum decay and its rms decay, which ELO-CELO2 relies on."""
        p, state = s.param, s.state
        if self.shared_moments:
            a = accumulators(state)
            advance_(a, s.grad, decays, axes)
            m, v = a.m[0], a.v
        else:
            m, v = state["exp_avg"], state["exp_avg_sq"]
            for block in blocks(p.shape, BLOCK):
                g = s.grad[block]
                ema_(m[block], g, decays.momentum[0])
                ema_(v[block], g * g, decays.rms)
        for block in blocks(p.shape, BLOCK):
            step = lr * adam_direction(m[block], v[block], state["step"].clamp(min=1))
            write_(p, block, step, 1 - lr * weight_decay, ok=s.grad.ok)
