"""A lane: pairs of particles on instances of one task, which go on from truncation to truncation for one horizon.

The meta-loss of an inner step is w(t / T) log(L / L0 + floor): L0 is the loss at the particle's start, the logarithm makes
tasks of all scales count alike, the floor keeps a perfect fit from counting without end, and w grows with t so that late losses
weigh more. A particle whose loss is no number, or worse than `BLOWN_UP` times its start's, counts as that bad and begins anew.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..models.small_fc import StepScales
from . import batched, full
from .es import METHODS, Pairs
from .inner import Instances
from .layout import Layout
from .tasks import Task, task_from_json

FLOOR, BLOWN_UP = 0.005, 5.0
PERTURBED = ("all", "outputs")


def meta_loss(loss: Tensor, first: Tensor, floor: float = FLOOR) -> Tensor:
    """log(L / L0 + floor), bounded above; a loss that is no number is as bad as can be."""
    ratio = torch.nan_to_num(loss / first, nan=BLOWN_UP, posinf=BLOWN_UP, neginf=BLOWN_UP).clamp(0, BLOWN_UP)
    return torch.log(ratio + floor)


def late_weight(t: Tensor, horizon: int, late: float) -> Tensor:
    """Of the inner step t of `horizon`, mean one over a life: 1 + late (2 t / T - 1), for late from 0 to 1."""
    return 1 + late * (2 * t / horizon - 1)


@dataclass(frozen=True)
class Unroll:
    """How particles are unrolled."""

    method: str = "nres"  # see `es`; or "full", see `full`
    sigma: float = 0.03
    perturb: str = "all"  # meta-weights, or "outputs": the last layer and the decays, a thirtieth of them
    truncation: int = 20  # inner steps
    shortest: int = 100  # horizons, in whole truncations; the work on them is log-uniform between the two
    longest: int = 5000
    floor: float = FLOOR  # share of the first loss below which nothing is left to gain
    late: float = 0.5  # weight of late losses, see `late_weight`
    elements: int = 24_000  # particles x parameters of a lane; fixes its number of pairs
    least_pairs: int = 2
    most_pairs: int = 24
    hidden: tuple[int, ...] = (32, 32)
    hidden_lr_mult: float | None = None  # MuLO's steps, see `lopt.optim.mulo`; None: small_fc's
    vector_lr_mult: float = 1.0  # MuLO's, of vectors
    lr_decay_steps: float | None = None  # steps shrink as (1 + t / lr_decay_steps)^-1/2
    by_signal: bool = False  # a tensor's steps are multiplied by how much its gradients agree, see `StepScales`

    def __post_init__(self) -> None:
        if self.method not in (*METHODS, "full"):
            raise ValueError(f"unknown estimator {self.method!r}; allowed: {', '.join((*METHODS, 'full'))}")
        if self.perturb not in PERTURBED or (self.method == "full" and self.perturb != "all"):
            raise ValueError(
                f"perturb={self.perturb!r} with method={self.method!r}; allowed: {' or '.join(PERTURBED)}, "
                "and an exact gradient is of all meta-weights"
            )
        if self.truncation < 1 or self.shortest < 1 or self.longest < self.shortest:
            raise ValueError(
                f"horizons from {self.shortest} to {self.longest} steps in truncations of {self.truncation}: "
                "each must be at least one step, and the longest not below the shortest"
            )
        _ = self.scales  # refuses what is not positive, and half of MuLO's
        if not self.floor > 0:
            raise ValueError(f"floor={self.floor}: a share of the first loss, above 0")
        if not 0 <= self.late <= 1:
            raise ValueError(f"late={self.late}: the weight of late losses is between 0 and 1")

    @property
    def scales(self) -> StepScales:
        """What steps are multiplied by."""
        return StepScales(self.hidden_lr_mult, self.vector_lr_mult, self.lr_decay_steps, self.by_signal)

    @property
    def free(self) -> int:
        """How many of the meta-weights, the last ones, are perturbed."""
        size = batched.parameters_of(self.hidden)
        return size if self.perturb == "all" else (self.hidden[-1] + 1) * batched.OUTPUTS + batched.OFFSETS

    def pairs(self, size: int) -> int:
        """Pairs of particles for networks of `size` parameters."""
        return max(self.least_pairs, min(self.most_pairs, self.elements // (2 * size)))

    def horizon(self, rng: random.Random, longest: float) -> int:
        """Inner steps of a lane's life, in whole truncations; `longest` is the curriculum's bound.

        1 / T is uniform: a life of T steps takes T / truncation outer steps, so what is spent on horizons is log-uniform.
        """
        least, most = self.shortest, max(self.shortest, min(self.longest, longest))
        steps = 1 / rng.uniform(1 / most, 1 / least)
        return max(1, round(steps / self.truncation)) * self.truncation


class Lane:
    """Particles on one task for one horizon; their random numbers come from a generator of the lane's own.

    Two particles per instance, perturbed in opposite directions; or one, where the gradient is taken exactly.
    """

    def __init__(self, task: Task, horizon: int, unroll: Unroll, seed: int) -> None:
        self.task, self.horizon, self.unroll = task, horizon, unroll
        self.generator = torch.Generator().manual_seed(seed)
        self.layout = Layout(task.shapes)
        n = unroll.pairs(self.layout.size)
        self.copies = 1 if unroll.method == "full" else 2
        self.instances = Instances(task, n, self.generator)
        size = batched.parameters_of(unroll.hidden)
        self.pairs = None if self.copies == 1 else Pairs(unroll.method, n, size, unroll.sigma, unroll.free)
        self.rows = self.instances.origin.repeat(self.copies, 1)
        self.state = batched.initial_state(self.layout, self.copies * n)
        self.lr = self.instances.rates(unroll.scales)
        self.first = torch.ones(n)  # L0
        self.age = 0  # inner steps of the lane; particles that blew up are younger
        self.scratch = batched.Scratch(self.copies * n, self.layout, unroll.hidden)

    @property
    def steps(self) -> int:
        """Parameter-steps of a truncation."""
        return self.unroll.truncation * self.rows.numel()

    @property
    def done(self) -> bool:
        return self.age >= self.horizon

    def advance(self, theta: Tensor) -> tuple[Tensor, float]:
        """One truncation: (estimate of the meta-gradient (D,), mean meta-loss). Particles that blew up begin anew."""
        estimate, loss, blown = self._differentiate(theta) if self.pairs is None else self._perturb(self.pairs, theta)
        self.age += self.unroll.truncation
        self._restart(blown)
        return estimate, loss

    def _perturb(self, pairs: Pairs, theta: Tensor) -> tuple[Tensor, float, Tensor]:
        """(estimate, mean meta-loss, which instances blew up), from losses of particles with perturbed meta-weights."""
        n, steps = self.instances.n, self.unroll.truncation
        meta = batched.meta_batch(pairs.perturb(theta, self.generator), self.unroll.hidden)
        total, plain, blown = torch.zeros(2 * n), 0.0, torch.zeros(2 * n, dtype=torch.bool)
        for _ in range(steps):
            batch = self.instances.next_batch(self.generator)
            losses, gradient = self.instances.losses_and_gradients(self.rows, batch)
            t = self.state.t[:n]
            self.first = torch.where(t == 0, losses[:n], self.first)
            own = meta_loss(losses, self.first.repeat(2), self.unroll.floor)
            total += own * late_weight(t, self.horizon, self.unroll.late).repeat(2)
            plain += own.mean().item()
            blown |= ~(losses < BLOWN_UP * self.first.repeat(2)) | ~torch.isfinite(gradient).all(1)
            batched.step_(self.rows, gradient.nan_to_num(0, 0, 0), self.state, meta, self.layout, self.scratch,
                          self.lr(self.state.t), self.unroll.by_signal)  # fmt: skip
        return pairs.gradient(total / steps), plain / steps, blown[:n] | blown[n:]

    def _differentiate(self, theta: Tensor) -> tuple[Tensor, float, Tensor]:
        """The same from the exact gradient of the losses in the second half of the unroll; what blew up adds nothing to it.

        A loss right after a step rewards what is greedy. Those of the first half are unrolled through and not counted, but at
        the start of a life, where haste is right: the mean loss over a short training is made in its first steps.
        """
        leaf = theta.detach().requires_grad_()
        batches = [self.instances.next_batch(self.generator) for _ in range(self.unroll.truncation)]
        t = self.state.t + torch.arange(len(batches))[:, None]  # (steps, n)
        losses, rows, state = full.unroll(
            leaf, self.rows, self.state, self.instances, batches, self.unroll.hidden, self.lr, self.unroll.by_signal
        )
        self.first = torch.where(self.state.t == 0, losses[0].detach(), self.first)
        own = meta_loss(losses, self.first, self.unroll.floor)
        fine = (losses < BLOWN_UP * self.first).all(0) & torch.isfinite(rows).all(1)
        weighted = own * late_weight(t, self.horizon, self.unroll.late)
        counted = weighted[0 if self.age == 0 else len(batches) // 2 :]
        counted = counted[:, fine].sum() / counted.numel()
        (gradient,) = torch.autograd.grad(counted, leaf)
        self.rows, self.state = rows.detach(), full.detached(state)
        return gradient, own.mean().item(), ~fine

    def _restart(self, which: Tensor) -> None:
        """New instances and parameters for the instances (n,) bool."""
        if which.any():
            self.instances.renew(which.nonzero()[:, 0], self.generator)
            all_copies = which.repeat(self.copies)
            self.rows[all_copies] = self.instances.origin.repeat(self.copies, 1)[all_copies]
            self.state.reset_(all_copies)
            if self.pairs is not None:
                self.pairs.restart(which)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next truncation depends on."""
        return {
            "task": self.task.as_json(), "horizon": self.horizon, "age": self.age, "generator": self.generator.get_state(),
            "instances": self.instances.state_dict(), "pairs": self.pairs.state_dict() if self.pairs else {},
            "rows": self.rows, "state": self.state.tensors(), "first": self.first}  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any], unroll: Unroll) -> Lane:
        """The inverse of `state_dict`."""
        lane = cls(task_from_json(state["task"]), state["horizon"], unroll, 0)
        lane.generator.set_state(state["generator"])
        lane.instances.load_state_dict(state["instances"])
        if lane.pairs is not None:
            lane.pairs.load_state_dict(state["pairs"])
        lane.rows, lane.first, lane.age = state["rows"], state["first"], state["age"]
        for mine, saved in zip(lane.state.tensors(), state["state"], strict=True):
            mine.copy_(saved)
        return lane
