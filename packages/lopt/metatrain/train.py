"""The meta-training loop: lanes of particles, one estimate of the meta-gradient per outer step, Adam on the meta-weights.

Each outer step advances the next few of the living lanes by a truncation and averages their estimates. A lane that reached its
horizon is replaced by one on a newly drawn task. With several processes each has lanes of its own, and estimates are averaged
over processes: the perturbations are what is spread. On one process and one thread a run is a function of its settings, and one
that was killed and taken up from its checkpoint equals an unbroken one bit for bit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from . import checkpoint
from .lane import Lane, Unroll
from .meta_weights import like_adam, unflatten
from .outer import Gauge, Outer, OuterAdam
from .tasks import draw, mixture_named

Report = Callable[[int, int, str], None]  # done, of how many, a note
LENGTHS = ("save_every", "snapshot_every")  # what may change between a run and its resumption


@dataclass(frozen=True)
class Settings:
    """One meta-training.

    Attributes:
        tasks: name of a mixture of families, or the shares themselves.
        steps: outer steps; None: as many as `minutes` allow, which makes the schedule follow the clock.
        lanes: alive at a time, in each process. lanes_per_step: advanced in an outer step.
        alike: estimates count in units of what is usual for their family of tasks, see `outer.Gauge`.
        first_longest: the curriculum: horizons reach up to this at the start and up to `unroll.longest` from `curriculum` of the
            run on, growing exponentially in between.
    """

    tasks: str | Mapping[str, float] = "mixed"
    steps: int | None = 2000
    minutes: float | None = None
    seed: int = 0
    lanes: int = 10
    lanes_per_step: int = 2
    alike: bool = False
    first_longest: int = 500
    curriculum: float = 0.5
    log_every: int = 20
    save_every: int = 200
    snapshot_every: int = 1000
    unroll: Unroll = field(default_factory=Unroll)
    outer: Outer = field(default_factory=Outer)

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("a meta-training is as long as `steps` or as `minutes` say: give one of the two")
        if (self.steps if self.steps is not None else self.minutes or 0) <= 0:
            raise ValueError(f"steps={self.steps}, minutes={self.minutes}: there is nothing to do")
        if not 1 <= self.lanes_per_step <= self.lanes:
            raise ValueError(f"lanes_per_step={self.lanes_per_step} must be from 1 to lanes={self.lanes}")

    @property
    def mixture(self) -> Mapping[str, float]:
        return mixture_named(self.tasks) if isinstance(self.tasks, str) else self.tasks

    def longest(self, progress: float) -> float:
        """The curriculum's bound on horizons after a share of the run."""
        share = min(1.0, progress / self.curriculum) if self.curriculum else 1.0
        return self.first_longest * (self.unroll.longest / self.first_longest) ** share


class MetaTraining:
    """A meta-training under way, in one of `world` processes."""

    def __init__(self, settings: Settings, folder: Path, start: Tensor | None = None) -> None:
        self.settings, self.folder = settings, Path(folder)
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        theta = like_adam(settings.seed, settings.unroll.hidden) if start is None else start
        unflatten(theta, settings.unroll.hidden)  # refuses another network's
        self.outer, self.gauge = OuterAdam(theta, settings.outer), Gauge(settings.outer)
        self.born, self.turn, self.step, self.elapsed = 0, 0, 0, 0.0
        self.history: list[dict[str, Any]] = []
        self.recent: dict[str, list[float]] = {}  # meta-losses by family since the last row of the curve
        self.lanes = [self._lane() for _ in range(settings.lanes)]

    @property
    def progress(self) -> float:
        """Share of the run that is done."""
        if self.settings.steps is not None:
            return self.step / self.settings.steps
        return self.elapsed / (60 * (self.settings.minutes or 1))

    def _lane(self) -> Lane:
        """A lane on a newly drawn task: which one follows from seed, process and how many there were before."""
        rng = random.Random(f"{self.settings.seed} {self.rank} {self.born}")
        self.born += 1
        task = draw(self.settings.mixture, rng)
        horizon = self.settings.unroll.horizon(rng, self.settings.longest(self.progress))
        return Lane(task, horizon, self.settings.unroll, rng.getrandbits(62))

    def run(self, report: Report = lambda done, total, note: None) -> Tensor:
        """Until the end; returns the meta-weights (D,), or their average where one is asked for.

        Writes checkpoints, snapshots and the curve into the folder.
        """
        settings, origin = self.settings, time.monotonic() - self.elapsed
        work, since = 0, self.elapsed
        while self.progress < 1:
            norm, moved = self._outer_step()
            self.elapsed, work = self._agreed(time.monotonic() - origin), work + moved
            if self.step % settings.log_every == 0:
                self._log(norm, work / max(self.elapsed - since, 1e-9))
                work, since = 0, self.elapsed
                report(*self._done(), self._note())
            if self.step % settings.save_every == 0 or self.progress >= 1:
                self.save()
        return self.outer.average

    def _outer_step(self) -> tuple[float, int]:
        """(norm of the meta-gradient, parameter-steps taken here)."""
        estimates, work = [], 0
        for _ in range(self.settings.lanes_per_step):
            lane = self.lanes[self.turn]
            estimate, loss = lane.advance(self.outer.theta)
            estimates.append(self.gauge.scaled(estimate, lane.task.family) if self.settings.alike else estimate)
            work += lane.steps
            self.recent.setdefault(lane.task.family, []).append(loss)
            if lane.done:
                self.lanes[self.turn] = self._lane()
            self.turn = (self.turn + 1) % len(self.lanes)
        gradient = self._averaged(torch.stack(estimates).mean(0))
        norm = self.outer.step(gradient, self.progress)
        self.step += 1
        return norm, work

    def _averaged(self, x: Tensor) -> Tensor:
        """The mean over processes."""
        if self.world > 1:
            dist.all_reduce(x)
            x /= self.world
        return x

    def _agreed(self, seconds: float) -> float:
        """Process 0's clock: all must see the same progress."""
        if self.world == 1:
            return seconds
        clock = torch.tensor(seconds, dtype=torch.float64)
        dist.broadcast(clock, 0)
        return clock.item()

    def _done(self) -> tuple[int, int]:
        """How much of how much, in steps or in seconds."""
        if self.settings.steps is not None:
            return self.step, self.settings.steps
        return round(self.elapsed), round(60 * (self.settings.minutes or 0))

    def _log(self, norm: float, rate: float) -> None:
        means = {f"loss_{family}": round(sum(x) / len(x), 5) for family, x in sorted(self.recent.items())}
        self.recent = {}
        row = {
            "step": self.step, "seconds": round(self.elapsed, 1), "rate": round(self.settings.outer.rate(self.progress), 7),
            "longest": round(self.settings.longest(self.progress)), "gradient_norm": round(norm, 6),
            "parameter_steps_per_second": round(rate), **means}  # fmt: skip
        self.history.append(row)

    def _note(self) -> str:
        row = self.history[-1]
        losses = ", ".join(f"{k.removeprefix('loss_')} {v:.2f}" for k, v in row.items() if k.startswith("loss_"))
        return f"meta-loss {losses}; {row['parameter_steps_per_second'] / 1e6:.1f} M parameter-steps/s"

    # ---- to go on later --------------------------------------------------------------------------------------------

    def save(self) -> None:
        """The checkpoint with every process's lanes, the curve, and a snapshot of the meta-weights when it is time."""
        mine = {
            "lanes": [lane.state_dict() for lane in self.lanes],
            "born": self.born,
            "turn": self.turn,
            "recent": self.recent,
            "gauge": self.gauge.state_dict(),
        }
        parts: list[Any] = [mine]
        if self.world > 1:
            parts = [None] * self.world
            dist.all_gather_object(parts, mine)
        if self.rank == 0:
            self._write(parts)
        if self.world > 1:
            dist.barrier()  # whoever goes on may count on the files

    def _write(self, parts: list[Any]) -> None:
        checkpoint.save(self.folder, checkpoint.CHECKPOINT, {
            "settings": asdict(self.settings), "world": self.world, "outer": self.outer.state_dict(), "step": self.step,
            "elapsed": self.elapsed, "history": self.history, "parts": parts})  # fmt: skip
        if self.history:
            checkpoint.save_curve(self.folder, self.history)
        if self.step % self.settings.snapshot_every == 0 or self.progress >= 1:
            checkpoint.save(self.folder / checkpoint.SNAPSHOTS, f"{self.step:07d}.pt", self.outer.average)

    def resume(self) -> MetaTraining:
        """Take up the folder's checkpoint.

        Raises:
            ValueError: there is none, or it is of other settings or another number of processes.
        """
        state = checkpoint.load(self.folder / checkpoint.CHECKPOINT)
        differ = [k for k, v in asdict(self.settings).items() if state["settings"].get(k) != v and k not in LENGTHS]
        if differ:
            raise ValueError(
                f"{self.folder} holds a run with other settings ({', '.join(differ)}): resume it as it was begun"
            )
        if state["world"] != self.world:
            raise ValueError(f"{self.folder} holds a run of {state['world']} processes, not of {self.world}")
        self.outer.load_state_dict(state["outer"])
        self.step, self.elapsed, self.history = state["step"], state["elapsed"], state["history"]
        own = state["parts"][self.rank]
        self.born, self.turn, self.recent = own["born"], own["turn"], own["recent"]
        self.gauge.load_state_dict(own["gauge"])
        self.lanes = [Lane.from_state(x, self.settings.unroll) for x in own["lanes"]]
        return self
