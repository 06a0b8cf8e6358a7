"""small_fc_lopt: a 39-32-32-2 network maps features of each parameter to its step.

Metz et al., "Practical tradeoffs between memory, compute, and performance in learned optimizers" (2022), the
AdafacMLPLOpt of google/learned_optimization. Per element:

    f = N(28 features of p, g and its accumulators), 11 time features      features.py
    o = MLP(f)                                                              39 -> 32 -> 32 -> 2
    p <- p - lr * o_0 exp(exp_mult o_1) step_mult

Meta-weights may want that multiplied by how much a tensor's gradients agree, as the packaged ones do, and by a factor that falls
with t, as packaged mulo does (`lopt.models.small_fc.StepScales`); published ones want neither.

Three layers below: `small_fc_step` is the mathematics on whole tensors (pure: meta-training uses it); `small_fc_update_`
does the same in place, in blocks, at a fifth of the cost; `SmallFCLOpt` only groups parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..features import (
    SMALL_FC,
    Accumulators,
    Axes,
    Decays,
    accumulate,
    factored_axes,
    features,
    init_accumulators,
    normalize,
    signal,
    time_features,
)
from ..models.mlp import MLP
from ..models.small_fc import SmallFCWeights
from ..step import cpu, dispatch
from ..step.reference import Factors, Gradient, Member, apply_, fold, measure_, scale_outputs, update_factors_
from .base import LearnedOptimizer, Slot, accumulators, count_, hold, rates, state_type

SignalAt = Callable[[Tensor], Tensor]  # mean squares of features -> signal, of tensors or of one


def small_fc_step(
    p: Tensor,  # (*shape)
    g: Tensor,  # (*shape)
    a: Accumulators,
    t: Tensor,  # () steps already done
    mlp: MLP,
    decays: Decays,
    axes: Axes | None,
    lr: float | Tensor = 1.0,
    exp_mult: float = 1e-3,
    step_mult: float = 1e-2,
    by_signal: bool = False,
) -> tuple[Tensor, Accumulators]:
    """One step of one tensor: the parameter and its accumulators after it. Pure, differentiable, vmap-able."""
    a = accumulate(a, g, decays, axes)
    x = features(SMALL_FC, p, g, a, axes)
    lr = lr * signal_of((x * x).reshape(len(x), -1).mean(1), decays, t) if by_signal else lr
    f = normalize(x, SMALL_FC.norm_eps).reshape(SMALL_FC.size, -1)  # (28, n)
    time = time_features(t.to(p.dtype))[:, None].expand(-1, f.shape[1])  # (11, n)
    o = mlp(torch.cat([f, time]))  # (2, n)
    step = o[0] * torch.exp(exp_mult * o[1]) * step_mult
    return p - lr * step.reshape(p.shape), a


def small_fc_update_(
    p: Tensor,
    g: Gradient,
    a: Accumulators,
    mlp: MLP,  # its outputs scaled: o_0 by lr step_mult, o_1 by exp_mult
    decays: Decays,
    time: Tensor,  # (11,)
    axes: Axes | None,
    shrink: float | Tensor = 1.0,  # 1 - lr * weight decay
    shrink_after: bool = False,
    signal_at: SignalAt | None = None,
) -> None:
    """The same in place: sums, measure, fold, apply (see step/reference.py)."""
    factors = Factors(None, None) if axes is None else update_factors_(a, g, decays.adafactor, axes)
    mean_square, kept = measure_(SMALL_FC, p, g, a, factors, decays)
    if signal_at is not None:
        mlp = scale_outputs(mlp, (signal_at(mean_square), 1.0))
    net = fold(SMALL_FC, mlp, mean_square, time, axes is not None)
    apply_(SMALL_FC, p, g, a, factors, net, axes, kept, shrink, shrink_after)


def small_fc_fused_(handle: int, batch: cpu.Batch, mlp: MLP, times: Tensor, signal_at: SignalAt | None = None) -> None:
    """The same for all tensors at once, by compiled kernels. times: (T, 11), constant over a tensor, so part of its bias."""
    mean_square, _ = cpu.measure_(handle, batch)
    if signal_at is not None:
        batch = batch.scaled(batch.step_scale * signal_at(mean_square))
    bias = torch.addmm(mlp.biases[0], times, mlp.weights[0][:, SMALL_FC.size :].T)
    cpu.apply_(handle, batch, mean_square, bias, cpu.pack(SMALL_FC.size, mlp.weights, mlp.biases))


def signal_of(mean_square: Tensor, decays: Decays, t: Tensor) -> Tensor:
    """`lopt.features.signal` of tensors from the mean squares of their features (..., 28), t (...) steps done before."""
    m_0, v = 2, 5  # places among the features
    return signal(mean_square[..., m_0], mean_square[..., v], decays.momentum[0], decays.rms, t)


class SmallFCLOpt(LearnedOptimizer):
    """small_fc_lopt as a torch optimizer.

    lr: multiplies the learned step; 1 is what weights are trained for. A number or a one-element tensor.
    weights: meta-weights, see `lopt.models.pretrained`; per group too. None: the packaged ones.
    weight_decay: decoupled, p (1 - lr wd), on the parameter before the step as in AdamW; `decay_after_step=True`
        shrinks the parameter after the step, which is PyLO's order.
    exp_mult, step_mult: o_0 exp(exp_mult o_1) step_mult.
    max_grad_norm: clips the norm of all gradients together (PyLO clips tensor by tensor); p.grad is left alone.
    layout: how ties between equal axes are broken, see `lopt.features.factored_axes`; per group too.
    nonfinite: "skip" leaves everything as it was in a step with a non-finite gradient, "raise" says where, "propagate".
    backend: "auto" | "reference" | "cpu" | "cuda" (docs/lopt-cuda.md); config: tunable parameters of its kernels, else (cpu) the
        tuned entry's, else defaults.
    decay_offsets: for checkpoints that lack them: "mulo", "zero", or a dict.
    lr_decay_steps: T of the factor (1 + t / T)^-1/2 on the learning rate after t steps of a tensor, besides any schedule
        of yours; None: the one that the meta-weights say they were trained with, if they say one; math.inf: none.
    more_defaults, more_group_options: for subclasses.

    State per element: 16 bytes (m three times, v) plus the row and column moments; below two dimensions 28 bytes.
    """

    packaged: str | None = "small_fc"  # what weights=None means; None: they must be named
    scales_hidden = False  # whether hidden matrices step as far as their fan-in allows: MuLO

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        weights: str | Path | SmallFCWeights | None = None,
        *,
        weight_decay: float = 0.0,
        exp_mult: float = 1e-3,
        step_mult: float = 1e-2,
        max_grad_norm: float | None = None,
        maximize: bool = False,
        decay_after_step: bool = False,
        layout: str = "torch",
        nonfinite: str = "skip",
        backend: str = "auto",
        config: Mapping[str, Any] | None = None,
        decay_offsets: str | Mapping[str, Any] | None = None,
        lr_decay_steps: float | None = None,
        more_defaults: Mapping[str, Any] | None = None,
        more_group_options: Mapping[str, Any] | None = None,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "exp_mult": exp_mult, "step_mult": step_mult,
                    "maximize": maximize, "decay_after_step": decay_after_step,
                    "lr_decay_steps": lr_decay_steps, **(more_defaults or {})}  # fmt: skip
        options = {"nonfinite": nonfinite, "max_grad_norm": max_grad_norm, "decay_offsets": decay_offsets,
                   "backend": dispatch.check(backend), "config": None if config is None else dict(config)}  # fmt: skip
        group_options = {"weights": weights, "layout": layout, **(more_group_options or {})}
        super().__init__(params, defaults, options=options, group_options=group_options)

    def prepare_group(self, values: dict[str, Any]) -> dict[str, Any]:
        factored_axes((1, 1), values["layout"])
        spec = self.packaged if values["weights"] is None else values["weights"]
        weights = self.load_once(SmallFCWeights, spec, decay_offsets=self.options["decay_offsets"])
        if weights.scales.hidden_lr_mult is not None and not self.scales_hidden:
            raise ValueError(
                f"{type(self).__name__} got meta-weights that were trained for MuLO "
                f"(hidden_lr_mult={weights.scales.hidden_lr_mult}): its steps would be of the wrong size; use lopt.MuLO"
            )
        return {**values, "weights": weights}

    def init_state(self, p: Tensor, group: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        axes = factored_axes(p.shape, values["layout"])
        a = init_accumulators(p.shape, axes, p.device, state_type(p))
        moments = {k: x for k, x in a._asdict().items() if x is not None}
        return {"step": torch.zeros((), dtype=torch.int64, device=p.device), **moments}

    def step_scale(self, p: Tensor, group: Mapping[str, Any], values: Mapping[str, Any]) -> float:
        """What one tensor's learning rate is multiplied by."""
        return 1.0

    def update(
        self, group: dict[str, Any], values: dict[str, Any], slots: list[Slot], ok: Tensor | None,
        device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        w = self.placed(values["weights"], device, dtype)
        own = w.decays().to(device, dtype)
        decays = hold(own, ok)
        handle = dispatch.kernels(self.options["backend"], SMALL_FC, w.mlp, device, dtype, self.options["config"])
        done = torch.stack([s.state["step"] for s in slots]).to(dtype)
        times, falls = time_features(done), decayed(group, w, done)
        members = [self._member(group, values, s, fall) for s, fall in zip(slots, falls, strict=True)]
        together, alone = cpu.divide(handle, members)

        def signal_at(places: Any) -> SignalAt | None:
            """Of the tensors at these places; a step that is skipped is held by decays of 1, which are not asked."""
            return (lambda mean_square: signal_of(mean_square, own, done[places])) if w.scales.by_signal else None

        if handle is not None and together:
            batch = cpu.Batch.of([members[i] for i in together], decays)
            small_fc_fused_(handle, batch, w.mlp, times[together], signal_at(together))
        scaled: dict[Any, MLP] = {}
        for i in alone:
            x = members[i]
            if x.step_scale not in scaled:
                scaled[x.step_scale] = scale_outputs(w.mlp, (x.step_scale, x.exp_mult))
            if x.param.numel():
                small_fc_update_(x.param, x.grad, x.accumulators, scaled[x.step_scale], decays, times[i], x.axes, x.shrink,
                                 x.shrink_after, signal_at(i))  # fmt: skip
        count_(slots, ok)

    def _member(self, group: dict[str, Any], values: dict[str, Any], s: Slot, fall: Tensor | float) -> Member:
        lr, _ = rates(group, s.param.device)
        lr = lr * self.step_scale(s.param, group, values) * fall
        return Member(s.param, s.grad, accumulators(s.state), factored_axes(s.param.shape, values["layout"]),
                      lr * group["step_mult"], group["exp_mult"], 1 - lr * group["weight_decay"],
                      group["decay_after_step"])  # fmt: skip


def decayed(group: Mapping[str, Any], weights: SmallFCWeights, done: Tensor) -> Sequence[Tensor | float]:
    """What is left of each tensor's learning rate after `done` (T,) steps of it."""
    own = group.get("lr_decay_steps")  # groups of older state dicts have none
    scales = weights.scales if own is None else replace(weights.scales, lr_decay_steps=own)
    endless = scales.lr_decay_steps is None or math.isinf(scales.lr_decay_steps)
    return [1.0] * len(done) if endless else scales.after(done).unbind()
