"""Training curves on frozen tasks: the learned optimizer, and AdamW at eight rates, on the same data from the same start.

Four measures of a curve: its final loss (mean over the last twentieth) and its mean loss, at 200 and at 1,000 steps. Optimizers
are compared by the geometric mean over tasks of the ratio of a measure, with a bootstrap interval over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..models.small_fc import UNSCALED, StepScales
from . import batched
from .inner import Instances
from .tasks import Task

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
Step = Callable[[Tensor, Tensor, int], None]  # rows, gradients, steps done: in place
Schedule = Callable[[int, int], float]  # step, of how many -> multiple of the rate
WORST = 5.0  # a loss that is no number counts as this multiple of the first


def constant(step: int, total: int) -> float:
    return 1.0


def cosine(step: int, total: int, warmup: float = 0.05) -> float:
    """Linear warm-up over a twentieth, then half a cosine to zero."""
    begin = max(1.0, warmup * total)
    return min(1.0, (step + 1) / begin) * 0.5 * (1 + math.cos(math.pi * step / total))


def curves(task: Task, number: int, seeds: int, copies: int, steps: int, make: Callable[[Instances], Step]) -> Tensor:
    """(copies, seeds, steps) losses; `number` is the task's place in its split, of which data and starts follow."""
    generator = torch.Generator().manual_seed(1_000_003 * (number + 1))
    instances = Instances(task, seeds, generator)
    rows, step = instances.origin.repeat(copies, 1), make(instances)
    losses = torch.empty(steps, copies * seeds)
    for t in range(steps):
        losses[t], gradient = instances.losses_and_gradients(rows, instances.next_batch(generator))
        step(rows, gradient, t)
    worst = WORST * losses[0].mean()
    losses = losses.nan_to_num(nan=worst.item(), posinf=worst.item()).clamp(max=worst)
    return losses.T.reshape(copies, seeds, steps)


def learned(
    theta: Tensor, lr: float = 1.0, schedule: Schedule = constant, steps: int = 0, scales: StepScales = UNSCALED
) -> Callable[[Instances], Step]:
    """small_fc or MuLO, as `scales` say, with flat meta-weights (D,) or a stack of them (k, D) for k copies."""
    stack = theta if theta.ndim == 2 else theta[None]

    def make(instances: Instances) -> Step:
        n, layout = len(stack) * instances.n, instances.layout
        meta = batched.meta_batch(stack.repeat_interleave(instances.n, 0))
        state, scratch = batched.initial_state(layout, n), batched.Scratch(n, layout, (32, 32))
        rates = instances.rates(scales)

        def step(rows: Tensor, gradient: Tensor, t: int) -> None:
            now = lr * schedule(t, steps) * rates(state.t)
            batched.step_(rows, gradient, state, meta, layout, scratch, now, scales.by_signal)

        return step

    return make


def adamw(
    rates: Sequence[float] = RATES, schedule: Schedule = constant, steps: int = 0, decay: float = 0.01
) -> Callable[[Instances], Step]:
    """torch.optim.AdamW with its defaults, one copy per learning rate."""

    def make(instances: Instances) -> Step:
        lr = torch.tensor(rates).repeat_interleave(instances.n)[:, None]
        m = torch.zeros(len(lr), instances.layout.size)
        v = torch.zeros_like(m)

        def step(rows: Tensor, gradient: Tensor, t: int) -> None:
            m.lerp_(gradient, 0.1)
            v.lerp_(gradient * gradient, 0.001)
            now = lr * schedule(t, steps)
            rows.mul_(1 - now * decay)
            denominator = (v / (1 - 0.999 ** (t + 1))).sqrt_().add_(1e-8)
            rows.sub_(now / (1 - 0.9 ** (t + 1)) * m / denominator)

        return step

    return make


def measures(curve: Tensor, horizons: Sequence[int]) -> dict[str, float]:
    """Final and mean loss at each horizon, the mean over seeds, of a curve (seeds, steps)."""
    out = {}
    for h in horizons:
        tail = max(1, h // 20)
        out[f"final_{h}"] = curve[:, h - tail : h].mean().item()
        out[f"mean_{h}"] = curve[:, :h].mean().item()
    return out


def compared(
    ours: Sequence[dict[str, float]], rates: Sequence[Sequence[dict[str, float]]], resamples: int = 2000, seed: int = 0
) -> dict[str, dict[str, list[float]]]:
    """Ratios of each measure to AdamW's: {"single": {measure: [ratio, low, high]}, "per_task": ...}.

    ours: one dict per task. rates: per task, one dict per learning rate. `single` is the rate that is best over all tasks in
    that measure, `per_task` the best of each task in hindsight. 95 % bootstrap intervals over tasks.
    """
    out: dict[str, dict[str, list[float]]] = {"single": {}, "per_task": {}}
    for key in ours[0]:
        log_ours = torch.tensor([math.log(x[key] + 1e-8) for x in ours], dtype=torch.float64)
        log_rates = torch.tensor([[math.log(r[key] + 1e-8) for r in row] for row in rates], dtype=torch.float64)
        best_single = log_rates[:, log_rates.mean(0).argmin()]
        for name, base in (("single", best_single), ("per_task", log_rates.min(1).values)):
            out[name][key] = interval(log_ours - base, resamples, seed)
    return out


def interval(log_ratios: Tensor, resamples: int, seed: int) -> list[float]:
    """Geometric mean and its 95 % bootstrap interval."""
    g = torch.Generator().manual_seed(seed)
    index = torch.randint(len(log_ratios), (resamples, len(log_ratios)), generator=g)
    means = log_ratios[index].mean(1).exp()
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return [round(log_ratios.mean().exp().item(), 4), round(low, 4), round(high, 4)]
