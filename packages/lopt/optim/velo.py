"""VeLO: a recurrent network watches every tensor and the loss, and builds each tensor's own tiny network.

Metz et al., "VeLO: Training Versatile Learned Optimizers by Scaling Up" (2022); HyperV2 of google/learned_optimization.
Per step, for all T tensors at once:

    X (T, 30)  progress t / N, loss features, moments of p, m and v of the last step
    z = X A3 + b3 + max over tensors relu(X A2 + b2);  h, c = LSTM([z, h], c)
    W = 100/256 sum_i (h Wc + bc)_i Bank_i             a 30-4-4-3 network per tensor
    lr_mult = h Ws + bs

and per element, with 30 features f of p, g and its accumulators:

    o = MLP_W(N(f));  p <- p - lr lr_mult sqrt(mean p^2 + 1e-9) o_0 exp(1e-3 o_1) 1e-3

The reference has no learning rate: lr = 1 is what the weights are trained for (PyLO's default, 1e-3, takes steps a
thousand times too small). Below: the mathematics on whole tensors (pure), the in-place update in blocks, the class.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..features import (
    BASE_DECAYS,
    VELO,
    Accumulators,
    Axes,
    Decays,
    accumulate,
    blocks,
    factored_axes,
    features,
    init_accumulators,
    normalize,
    parameter_rms,
    part,
    wide_type,
)
from ..models.mlp import MLP
from ..models.velo import VeLOWeights
from ..step import cpu, dispatch
from ..step.reference import BLOCK, Factors, Gradient, Member, apply_, fold, measure_, update_factors_
from .base import Active, LearnedOptimizer, Slot, accumulators, hold, rates, state_type

PROGRESS = (0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1)
STEP_MULT, EXP_MULT, GRADIENT_BOUND = 1e-3, 1e-3, 1000.0
INITIAL_MINIMUM = 999999999999.0


# ---- mathematics: pure functions on whole tensors ----------------------------------------------------------------


class LossStats(NamedTuple):
    """What VeLO remembers of the loss: ten moving averages, the lowest value each has had."""

    mean: Tensor  # (10,)
    low: Tensor  # (10,)


def loss_decays(num_steps: int) -> Tensor:
    """d_j = exp(-1 / h_j), half-lives h_j from 10 steps to num_steps, log-spaced, (10,) float32."""
    h = torch.logspace(1, math.log10(num_steps), 10, dtype=torch.float64).to(torch.float32)
    return torch.exp(-1 / h)


def loss_features(s: LossStats, it: Tensor, loss: Tensor, d: Tensor) -> tuple[Tensor, LossStats]:
    """How far each average is above its lowest value, on the scale of the next slower one: (9,) in [-1, 1].

    it: () steps already done. A loss beyond twice the largest average is cut there. All features are 0 while it <= 2
    after counting this step.
    """
    corrected = s.mean / (1 - d ** (it + 1))
    largest = torch.where(it == 0, loss, corrected.max())
    cut = torch.minimum(2 * largest.abs(), loss)
    mean = s.mean * d + cut * (1 - d)
    c = mean / (1 - d ** (it + 1))
    low = torch.minimum(s.low, c)
    f = (c[:-1] - low[:-1]) / (c[1:] - low[:-1]).clamp(min=1e-8) - 1
    return torch.where(it + 1 > 2, f.clamp(-1, 1), 0.0), LossStats(mean, low)


class Moments(NamedTuple):
    """Statistics over each tensor that the recurrent network sees, T of them."""

    p2: Tensor  # (T,) mean p^2
    v_mean: Tensor  # (T,)
    v_var: Tensor  # (T,)
    m_mean: Tensor  # (T, 3)
    m_var: Tensor  # (T, 3)


def clog(x: Tensor) -> Tensor:
    """0.5 clip(log(1e-8 + |10 x|), -5, 5)."""
    return 0.5 * torch.log(1e-8 + (10 * x).abs()).clamp(-5, 5)


def recurrent_inputs(s: Moments, ranks: Tensor, progress: Tensor, loss_feats: Tensor) -> Tensor:
    """X (T, 30). ranks: (T,) dimensions larger than 1; progress: () t / N; loss_feats: (9,).

    The last three channels are mean (v - mean m_k)^2, with the mean of m_k where one would expect that of v: the
    reference's formula, which the weights were trained with. Ranks of 5 and more have no one-hot entry there either.
    """
    t = len(ranks)
    sc = s.p2.clamp(min=1e-9).rsqrt()[:, None]
    fractions = torch.tensor(PROGRESS, device=progress.device, dtype=s.p2.dtype)
    time = torch.tanh(10 * (progress - fractions)).expand(t, -1)
    one_hot = (ranks[:, None] == torch.arange(5, device=ranks.device)).to(s.p2.dtype)
    v_spread = s.v_var[:, None] + (s.v_mean[:, None] - s.m_mean) ** 2
    return torch.cat([time, loss_feats.expand(t, -1), clog(s.v_mean[:, None] * sc), one_hot,
                      clog(s.m_var * sc**2), clog(v_spread * sc**2)], 1)  # fmt: skip


def recurrent_step(w: VeLOWeights, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """X (T, 30), state (T, H) -> the next state. The maximum over tensors is how tensors hear of each other."""
    z = w.direct(x) + w.pooled(x).relu().amax(0, keepdim=True)
    i, g, f, o = w.lstm(torch.cat([z, h], 1)).chunk(4, 1)
    c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def velo_step(
    p: Tensor, g: Tensor, a: Accumulators, mlp: MLP, lr_mult: Tensor, axes: Axes | None, decays: Decays, lr: float = 1.0
) -> tuple[Tensor, Accumulators]:
    """One tensor's step, given the network that was mixed for it. Pure, differentiable, vmap-able."""
    g = g.clamp(-GRADIENT_BOUND, GRADIENT_BOUND)
    a = accumulate(a, g, decays, axes)
    f = normalize(features(VELO, p, g, a, axes), VELO.norm_eps).reshape(VELO.size, -1)  # (30, n)
    o = mlp(f)  # (3, n)
    step = lr_mult * parameter_rms(p) * o[0] * torch.exp(EXP_MULT * o[1]) * STEP_MULT
    return p - lr * step.reshape(p.shape), a


# ---- in place, in blocks -----------------------------------------------------------------------------------------


def statistics(p: Tensor, a: Accumulators, limit: int = BLOCK) -> Tensor:
    """What `moments` reads of one tensor, (9,): mean p^2; means of v and m_k; variances of v and m_k.

    Variances of blocks are joined and never computed as a difference of squares: one element has variance 0 to the bit,
    and the logarithm would show anything else.
    """
    wide, tiles, rows = wide_type(p.device), blocks(p.shape, limit), []
    for block in tiles:
        x = torch.cat([a.v[block].reshape(1, -1), part(a.m, block).reshape(3, -1)])
        var, mean = torch.var_mean(x, 1, correction=0)
        rows.append(torch.cat([p[block].to(x.dtype).square().mean()[None], mean, var]))
    r = torch.stack(rows).to(wide)  # (blocks, 9)
    sizes = torch.tensor([math.prod([s.stop - s.start for s in block]) for block in tiles], device=p.device, dtype=wide)
    w = (sizes / sizes.sum())[:, None]
    mean = (w * r[:, :5]).sum(0)
    var = (w * (r[:, 5:] + (r[:, 1:5] - mean[1:]) ** 2)).sum(0)
    return torch.cat([mean, var])


def moments(rows: Tensor) -> Moments:
    """(T, 9), one row of `statistics` per tensor."""
    return Moments(p2=rows[:, 0], v_mean=rows[:, 1], m_mean=rows[:, 2:5], v_var=rows[:, 5], m_var=rows[:, 6:9])


def velo_update_(
    p: Tensor, g: Gradient, a: Accumulators, mlp: MLP, decays: Decays, axes: Axes | None,
    shrink: float | Tensor = 1.0, shrink_after: bool = False,
) -> None:  # fmt: skip
    """`velo_step` in place; the network's outputs are already scaled by everything that is constant over the tensor."""
    factors = Factors(None, None) if axes is None else update_factors_(a, g, decays.adafactor, axes)
    mean_square, kept = measure_(VELO, p, g, a, factors, decays)
    net = fold(VELO, mlp, mean_square, None, axes is not None)
    apply_(VELO, p, g, a, factors, net, axes, kept, shrink, shrink_after)


class VeLO(LearnedOptimizer):
    """VeLO as a torch optimizer.

    num_steps: how many steps the run will have; VeLO's own schedule is made from it, and it matters.
    lr: multiplies the learned step; 1 is what the weights are trained for. A number or a one-element tensor.
    weights: meta-weights, see `lopt.models.pretrained`; the published ones are two files:
        "hub:Pauljanson002/VeLO_RNN+Pauljanson002/VeLO_MLP". Per group too: tensors hear of those with the same weights.
    weight_decay, decay_after_step, max_grad_norm, maximize, layout, nonfinite, backend, config: as in `SmallFCLOpt`.

    The loss belongs to the step: `opt.step(closure)` or `opt.step(loss=loss)`, a tensor or a number. Without it the loss
    features are zero, as in the first two steps of any run, and a warning says so once. Tensors without a gradient take
    no part in a step. State: 16 bytes an element and the row and column moments, plus 2 H + 21 numbers a tensor.
    """

    gradient_bound = GRADIENT_BOUND
    uses_loss = True

    def __init__(
        self,
        params: Any,
        num_steps: int,
        lr: float | Tensor = 1.0,
        weights: str | Path | VeLOWeights | None = None,
        *,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
        maximize: bool = False,
        decay_after_step: bool = False,
        layout: str = "torch",
        nonfinite: str = "skip",
        backend: str = "auto",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not (isinstance(num_steps, int) and num_steps >= 1):
            raise ValueError(f"num_steps={num_steps!r}: the number of steps of the whole run, at least 1")
        defaults = {"lr": lr, "weight_decay": weight_decay, "maximize": maximize, "decay_after_step": decay_after_step}
        options = {"num_steps": num_steps, "nonfinite": nonfinite, "max_grad_norm": max_grad_norm,
                   "backend": dispatch.check(backend), "config": None if config is None else dict(config)}  # fmt: skip
        super().__init__(params, defaults, options=options, group_options={"weights": weights, "layout": layout})

    def prepare_group(self, values: dict[str, Any]) -> dict[str, Any]:
        factored_axes((1, 1), values["layout"])
        return {**values, "weights": self.load_once(VeLOWeights, values["weights"])}

    def init_state(self, p: Tensor, group: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Step and loss statistics are the run's: a parameter that joins late takes them over."""
        w, dtype = values["weights"], state_type(p)
        shared = {
            "step": torch.zeros((), dtype=torch.int64, device=p.device),
            "loss_mean": torch.zeros(10, device=p.device, dtype=dtype),
            "loss_low": torch.full((10,), INITIAL_MINIMUM, device=p.device, dtype=dtype),
        }
        other = next(iter(self.state.values()), None)
        if other is not None:
            shared = {k: other[k].to(x, copy=True) for k, x in shared.items()}
        own = init_accumulators(p.shape, factored_axes(p.shape, values["layout"]), p.device, dtype)._asdict()
        recurrent = {"lstm_h": w.init_h[0], "lstm_c": w.init_c[0]}
        return {**shared, **{k: x for k, x in own.items() if x is not None},
                **{k: x.to(p.device, dtype, copy=True) for k, x in recurrent.items()}}  # fmt: skip

    def update_groups(self, active: list[Active], ok: Tensor | None, loss: Any) -> None:
        """All tensors of all groups that share meta-weights, device and state type, together."""
        state = self.state[active[0].slots[0].param]
        features, progress = self._advance(state, ok, loss)
        together: dict[tuple[int, torch.device, torch.dtype], list[tuple[Active, Slot]]] = {}
        for group in active:
            for s in group.slots:
                if s.param.numel():
                    key = (id(group.values["weights"]), s.param.device, s.grad.dtype)
                    together.setdefault(key, []).append((group, s))
        for (_, device, dtype), members in together.items():
            flag = None if ok is None else ok.to(device)
            self._update_together(members, flag, features.to(device, dtype), progress.to(device, dtype), device, dtype)

    def _advance(self, state: dict[str, Any], ok: Tensor | None, loss: Any) -> tuple[Tensor, Tensor]:
        """Loss features (9,) and progress () of this step; every parameter's copy of step and statistics moves on."""
        t, mean, low = state["step"], state["loss_mean"], state["loss_low"]
        progress = t / self.options["num_steps"]
        if loss is None:
            self._warn_no_loss()
            features, stats = torch.zeros(9, device=t.device), LossStats(mean, low)
        else:
            loss = torch.as_tensor(loss, device=t.device).detach().to(mean.dtype).reshape(())
            d = loss_decays(self.options["num_steps"]).to(mean.device, mean.dtype)
            features, stats = loss_features(LossStats(mean, low), t, loss, d)
        new = {"step": t + 1, "loss_mean": stats.mean, "loss_low": stats.low}
        new = new if ok is None else {k: torch.where(ok.to(t.device), x, state[k]) for k, x in new.items()}
        for k, x in new.items():
            x = x.clone()
            for s in self.state.values():
                s[k].copy_(x)
        return features, progress

    def _warn_no_loss(self) -> None:
        if not self.options.get("warned"):
            self.options["warned"] = True
            message = "VeLO was trained to watch the loss: use opt.step(closure) or opt.step(loss=loss)"
            warnings.warn(message, RuntimeWarning, stacklevel=5)

    def _update_together(
        self, members: list[tuple[Active, Slot]], ok: Tensor | None, features: Tensor, progress: Tensor,
        device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        w = self.placed(members[0][0].values["weights"], device, dtype)
        decays = hold(Decays(*(torch.tensor(b, device=device, dtype=torch.float32).to(dtype) for b in BASE_DECAYS)), ok)
        handle = dispatch.kernels(self.options["backend"], VELO, w.network(0), device, dtype, self.options["config"])
        every = [self._member(group, s, device) for group, s in members]
        together, alone = cpu.divide(handle, every)
        rest, order = [every[i] for i in alone], [*together, *alone]
        rows = [statistics(x.param, x.accumulators)[None].to(dtype) for x in rest]
        if handle is not None and together:
            batch = cpu.Batch.of([every[i] for i in together], decays)
            mean_square, means = cpu.measure_(handle, batch)
            rows = [means, *rows]
        m = moments(torch.cat(rows))
        own = [members[i][1] for i in order]
        controls, lr_mult = cpu.on_one_thread(self._recur, w, own, m, features, progress, ok)
        lr = torch.stack([torch.as_tensor(every[i].step_scale, device=device, dtype=dtype).reshape(()) for i in order])
        scale = lr * lr_mult * (m.p2 + 1e-9).sqrt() * STEP_MULT
        n = len(together)
        if handle is not None and together:
            weights, biases = cpu.on_one_thread(w.mix, controls[:n])
            cpu.apply_(handle, batch.scaled(scale[:n]), mean_square, biases[0], cpu.pack(VELO.size, weights, biases))
        for x, mlp in zip(rest, mixed_networks(w, controls[n:], scale[n:]), strict=True):
            velo_update_(x.param, x.grad, x.accumulators, mlp, decays, x.axes, x.shrink, x.shrink_after)

    def _member(self, group: Active, s: Slot, device: torch.device) -> Member:
        lr, shrink = rates(group.group, device)
        axes = factored_axes(s.param.shape, group.values["layout"])
        return Member(s.param, s.grad, accumulators(s.state), axes, lr, EXP_MULT, shrink,
                      group.group["decay_after_step"])  # fmt: skip

    def _recur(
        self, w: VeLOWeights, slots: list[Slot], m: Moments, features: Tensor, progress: Tensor, ok: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """One step of the recurrent network for T tensors: controls (T, B) and lr_mult (T,)."""
        ranks = torch.tensor([sum(n > 1 for n in s.param.shape) for s in slots], device=features.device)
        x = recurrent_inputs(m, ranks, progress, features)
        old = [torch.stack([s.state[k] for s in slots]) for k in ("lstm_h", "lstm_c")]
        new = recurrent_step(w, x, *old)
        for k, before, after in zip(("lstm_h", "lstm_c"), old, new, strict=True):
            kept = after if ok is None else torch.where(ok, after, before)
            torch._foreach_copy_([s.state[k] for s in slots], list(kept.unbind()))
        return w.controls(new[0]), w.step_size(new[0])[:, 0]


def mixed_networks(w: VeLOWeights, controls: Tensor, scale: Tensor) -> list[MLP]:
    """A network for each of T tensors, o_0 multiplied by its scale (T,) and o_1 by EXP_MULT; o_2 is not used."""
    weights, biases = w.mix(controls)
    factor = torch.stack([scale, torch.full_like(scale, EXP_MULT)], 1)  # (T, 2)
    weights[-1], biases[-1] = weights[-1][:, :2] * factor[:, :, None], biases[-1][:, :2] * factor
    return [MLP(tuple(x[i] for x in weights), tuple(x[i] for x in biases)) for i in range(len(scale))]
