"""Many trainings of one task side by side: parameters in rows, losses and gradients of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..models.small_fc import StepScales
from ..optim.mulo import fan_in
from .layout import Layout
from .tasks import Data, Task


class Instances:
    """`n` instances of a task: its data, its reparametrisation, and where its networks start."""

    def __init__(self, task: Task, n: int, generator: torch.Generator) -> None:
        self.task, self.n, self.layout = task, n, Layout(task.shapes)
        self.data: Data = {}
        self.multiplier = torch.empty(n, self.layout.size)  # the network's tensors are multiplier * the trained row
        self.origin = torch.empty(n, self.layout.size)  # rows to start from
        self.renew(torch.arange(n), generator)

    def renew(self, which: Tensor, generator: torch.Generator) -> None:
        """New data, reparametrisation and start for the instances with these numbers."""
        count, spread = len(which), self.task.tensor_spread
        fresh = self.task.data(count, generator)
        factors = self.task.scale * torch.exp(spread * torch.randn(count, len(self.layout.shapes), generator=generator))
        multiplier = factors[:, self.layout.owner]
        start = self.layout.pack(self.task.start(count, generator)) / multiplier
        for key, x in fresh.items():
            if x.is_floating_point() and not torch.isfinite(x).all():
                raise ValueError(
                    f"the data {key!r} of the {self.task.family} task hold NaN or infinite numbers: {self.task}"
                )
            if key not in self.data:
                self.data[key] = x.new_empty(self.n, *x.shape[1:])
            self.data[key][which] = x
        self.multiplier[which], self.origin[which] = multiplier, start

    def step_scale(self, scales: StepScales) -> Tensor:
        """(size,) what steps are multiplied by; `Task.hidden` says which tensors are hidden."""
        tensors = zip(self.task.shapes, self.task.hidden, strict=True)
        return self.layout.spread([scales.of(len(shape), fan_in(shape), hidden) for shape, hidden in tensors])

    def rates(self, scales: StepScales) -> Callable[[Tensor], Tensor]:
        """What elements' steps are multiplied by, of steps done (n,): (n, size), or (size,) where it does not fall."""
        scale = self.step_scale(scales)
        return (lambda t: scale) if scales.lr_decay_steps is None else (lambda t: scales.after(t)[:, None] * scale)

    def next_batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One inner step's examples of every instance."""
        return self.task.next_batch(self.data, generator)

    def losses(self, rows: Tensor, batch: Sequence[Tensor]) -> Tensor:
        """(k n,) losses of k n rows, k of them per instance (1 for training, 2 for pairs, more for a table of rates)."""
        copies = len(rows) // self.n
        return self._losses(self.layout.unpack(rows * self.multiplier.repeat(copies, 1)), batch)

    def _losses(self, tensors: list[Tensor], batch: Sequence[Tensor]) -> Tensor:
        copies = len(tensors[0]) // self.n
        examples = [x.repeat(copies, *(1,) * (x.ndim - 1)) for x in batch]
        return self.task.loss_scale * self.task.losses(tensors, *examples)

    def losses_and_gradients(self, rows: Tensor, batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(k n,) losses, (k n, size) their gradients."""
        multiplier = self.multiplier.repeat(len(rows) // self.n, 1)
        # Of the tensors, not of the rows: a view's gradient is as large as the rows, and mostly zeros.
        tensors = [x.requires_grad_() for x in self.layout.unpack(rows.detach() * multiplier)]
        losses = self._losses(tensors, batch)
        gradients = torch.autograd.grad(losses.sum(), tensors, allow_unused=True, materialize_grads=True)
        return losses.detach(), self.layout.pack(gradients).mul_(multiplier)

    def state_dict(self) -> dict[str, Tensor | Data]:
        return {"data": self.data, "multiplier": self.multiplier, "origin": self.origin}

    def load_state_dict(self, state: dict[str, Tensor | Data]) -> None:
        self.data = dict(state["data"])
        self.multiplier, self.origin = state["multiplier"], state["origin"]  # type: ignore[assignment]
