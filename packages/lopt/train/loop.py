"""A training run: a task, an optimizer, a schedule; checkpoints it can be taken up from exactly; a curve.

Loss is the training loss of each step's batch, before that step. Time is that of the steps alone, without checkpoints and without
the first step, in which kernels are compiled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..metatrain import checkpoint
from ..optim.base import LearnedOptimizer
from ..tasks import TrainingTask
from . import schedules
from .optimizers import Optimizers, build
from .trackers import Files, Tracker

Report = Callable[[int, int, str], None]  # done, of how many, a note


@dataclass(frozen=True)
class Settings:
    """One training.

    Attributes:
        optimizer: name, see `lopt.train.optimizers`; options: for its constructor (weights, weight_decay, ...).
        warmup: share of the run over which the rate rises. clip: bound of the norm of all gradients together.
        bf16: forward pass under autocast. compile: the model through torch.compile.
        save_every: steps between checkpoints; 0: none but the last.
    """

    optimizer: str = "adamw"
    lr: float = 1e-3
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 500
    seed: int = 0
    schedule: str = "constant"
    warmup: float = 0.0
    clip: float | None = None
    bf16: bool = False
    compile: bool = False
    device: str = "cpu"
    save_every: int = 0
    log_every: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}: a training has at least one step")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup={self.warmup} is a share of the run, from 0 to below 1")
        schedules.check(self.schedule)


@dataclass(frozen=True)
class Result:
    """What a run came to. final: mean loss over the last twentieth; infinite if it diverged."""

    losses: list[float]
    seconds: float
    diverged: bool

    @property
    def final(self) -> float:
        tail = self.losses[-max(1, len(self.losses) // 20) :]
        return math.inf if self.diverged else sum(tail) / len(tail)

    @property
    def mean(self) -> float:
        return math.inf if self.diverged else sum(self.losses) / len(self.losses)


class Training:
    """A training under way."""

    def __init__(self, task: TrainingTask, settings: Settings, folder: Path, trackers: Sequence[Tracker] = ()) -> None:
        self.task, self.settings, self.folder, self.trackers = task, settings, Path(folder), list(trackers)
        torch.manual_seed(settings.seed)
        self.model = task.make().to(settings.device)
        self.forward: nn.Module = torch.compile(self.model) if settings.compile else self.model  # type: ignore[assignment]
        self.optimizers: Optimizers = build(
            settings.optimizer, self.model, settings.lr, settings.steps, **settings.options
        )
        self.rates = [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.losses: list[float] = []
        self.seconds = 0.0
        self.files = Files(self.folder)

    def run(self, report: Report = lambda done, total, note: None) -> Result:
        """Until the last step, or until the loss is no number; writes the curve and a checkpoint."""
        s, diverged = self.settings, False
        while len(self.losses) < s.steps and not diverged:
            step = len(self.losses)
            began = time.perf_counter()
            loss = self._step(step)
            self.seconds += time.perf_counter() - began if step else 0.0
            self.losses.append(loss)
            diverged = not math.isfinite(loss)
            if step % s.log_every == 0 or step == s.steps - 1:
                self._log(step, loss)
                report(step + 1, s.steps, f"loss {loss:.4f}")
            if s.save_every and (step + 1) % s.save_every == 0:
                self.save()
        self.save()
        for tracker in self.trackers:
            tracker.close()
        return Result(self.losses, self.seconds, diverged or not math.isfinite(self.losses[-1]))

    def _step(self, step: int) -> float:
        s = self.settings
        x, y = (part.to(s.device) for part in self.task.source.sample(self.task.batch, self.generator))
        scale = schedules.multiple(s.schedule, step, s.steps, s.warmup)
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            optimizer.zero_grad()
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * scale
        with torch.autocast(torch.device(s.device).type, torch.bfloat16, enabled=s.bf16):
            loss = self.task.loss(self.forward, x, y)
        loss.backward()
        if s.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), s.clip)
        for optimizer in self.optimizers:
            if isinstance(optimizer, LearnedOptimizer):
                optimizer.step(loss=loss.detach())
            else:
                optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            refuse_nan((x, y), step)
        return value

    def _log(self, step: int, loss: float) -> None:
        values = {"loss": loss, "seconds": round(self.seconds, 4), "lr": self.optimizers[0].param_groups[0]["lr"]}
        for tracker in (self.files, *self.trackers):
            tracker.log(step, values)

    def save(self) -> None:
        """The checkpoint and the curve."""
        checkpoint.save(self.folder, checkpoint.CHECKPOINT, {
            "settings": asdict(self.settings), "task": self.task.name, "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers], "generator": self.generator.get_state(),
            "losses": self.losses, "seconds": self.seconds, "rows": self.files.rows})  # fmt: skip
        self.files.flush()

    def resume(self) -> Training:
        """Take up the folder's checkpoint.

        Raises:
            ValueError: there is none, or it is of another task or other settings.
        """
        state = checkpoint.load(self.folder / checkpoint.CHECKPOINT)
        now = {**asdict(self.settings), "task": self.task.name}
        then = {**state["settings"], "task": state["task"]}
        differ = [k for k, v in now.items() if then.get(k) != v and k != "save_every"]
        if differ:
            raise ValueError(f"{self.folder} holds a run with another {', '.join(differ)}: resume it as it was begun")
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.generator.set_state(state["generator"])
        self.losses, self.seconds, self.files.rows = state["losses"], state["seconds"], state["rows"]
        return self


def refuse_nan(batch: tuple[Tensor, ...], step: int) -> None:
    """Raises ValueError if it is the data that are not finite: a training that diverged is a result, this is a mistake."""
    if any(part.is_floating_point() and not torch.isfinite(part).all() for part in batch):
        raise ValueError(f"the batch of step {step} holds NaN or infinite numbers: mend the data")
