"""metaopt train: a task with an optimizer, beside AdamW at eight learning rates; loss against step and against time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from lopt import tasks
from lopt.metatrain.checkpoint import CHECKPOINT
from lopt.train import Result, Settings, Training
from lopt.train.trackers import Tracker, open_tracker
from metabench import figures, results
from metabench.errors import UserError
from metabench.files import write_json

from . import console


@dataclass(frozen=True)
class Run:
    """One optimizer at one learning rate, trained."""

    name: str
    lr: float
    result: Result


def run(config: DictConfig, out: Path) -> str:
    """Train with every rate of the optimizer and of the baseline; write curves, table, summary and figures."""
    torch.set_num_threads(config.threads)
    try:
        task = tasks.make_task(**{"seed": config.seed, **config.task})
        print(f"{task.name}: {tasks.parameters(task):,} parameters, {config.steps} steps", flush=True)
        groups = [config.learned_optimizer, *([config.baseline] if config.get("baseline") else [])]
        runs = [one for group in groups for one in runs_of(group, task, config, out)]
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    report(runs, groups, task.name, out)
    first = best(runs, label(config.learned_optimizer))
    beside = [best(runs, label(group)) for group in groups[1:] if label(group) != first.name]
    line = ", ".join(f"{r.name} {r.result.final:.4g} (lr {r.lr:g})" for r in (first, *beside))
    return f"{task.name}, final loss: {line}"


def label(group: DictConfig) -> str:
    """What an optimizer's runs are called."""
    return group.name if group.schedule == "constant" else f"{group.name}_{group.schedule}"


def runs_of(group: DictConfig, task: tasks.TrainingTask, config: DictConfig, out: Path) -> list[Run]:
    """One training per learning rate; with `resume`, each goes on from its own checkpoint."""
    runs: list[Run] = []
    with console.progress(label(group), len(group.rates) * config.steps) as bar:
        for number, rate in enumerate(float(x) for x in group.rates):
            folder = out / "runs" / f"{label(group)}-{rate:g}"
            trackers: list[Tracker] = [open_tracker(kind, folder, folder.name, config.task) for kind in config.trackers]
            training = Training(task, settings_of(group, rate, config), folder, trackers)
            if config.resume and (folder / CHECKPOINT).exists():
                training.resume()
            shown = functools.partial(_show, bar, number, rate)
            runs.append(Run(label(group), rate, training.run(shown)))
    return runs


def _show(bar: Callable[[int, str], None], number: int, rate: float, done: int, steps: int, note: str) -> None:
    """How far the `number`-th of several trainings is."""
    bar(number * steps + done, f"lr {rate:g}, {note}")


def settings_of(group: DictConfig, rate: float, config: DictConfig) -> Settings:
    """One run's settings from the optimizer's group and the verb's own fields."""
    options: dict[str, Any] = OmegaConf.to_container(group.options, resolve=True)  # type: ignore[assignment]
    options |= {k: v for k, v in (("weights", group.weights), ("weight_decay", config.weight_decay)) if v is not None}
    return Settings(
        optimizer=group.name, lr=rate, options=options, steps=config.steps, seed=config.seed, schedule=group.schedule,
        warmup=group.warmup, clip=config.clip, bf16=config.bf16, compile=config.compile, device=config.device,
        save_every=config.save_every)  # fmt: skip


def best(runs: list[Run], name: str) -> Run:
    """The run with the least final loss, in hindsight."""
    return min((r for r in runs if r.name == name), key=lambda r: r.result.final)


def report(runs: list[Run], groups: list[DictConfig], task: str, out: Path) -> None:
    """Table, summary.json, results.csv/.parquet, and the two figures."""
    rows = [
        {"task": task, "optimizer": r.name, "lr": r.lr, "final": r.result.final, "mean": r.result.mean,
         "diverged": r.result.diverged, "seconds": round(r.result.seconds, 3)}
        for r in runs]  # fmt: skip
    results.write_table(rows, out / "results")
    header = ["optimizer", "lr", "final loss", "mean loss", "seconds"]
    print(
        results.text_table(
            header, [[r["optimizer"], *(f"{r[k]:.4g}" for k in ("lr", "final", "mean", "seconds"))] for r in rows]
        )
    )
    defaults = {label(g): float(g.default_rate) for g in groups if "default_rate" in g}
    shown = {name: best(runs, name) for name in dict.fromkeys(label(g) for g in groups)}
    for name, rate in defaults.items():
        if same := [r for r in runs if r.name == name and r.lr == rate]:
            shown[f"{name} default"] = same[0]
    write_json(out / "summary.json", {name: summary(r) for name, r in shown.items()})
    draw(shown, task, out)


def summary(r: Run) -> dict[str, float | None]:
    """A run's numbers; a diverged one has no losses, because JSON has no infinity."""
    losses = {} if r.result.diverged else {"final": r.result.final, "mean": r.result.mean}
    return {"lr": r.lr, "final": None, "mean": None, **losses}


def draw(shown: dict[str, Run], title: str, out: Path, points: int = 200) -> None:
    """Loss against step and against seconds, averaged over windows of a twentieth of the run."""
    for axis in ("step", "seconds"):
        drawn, axes = figures.figure()
        rows = []
        for i, (name, r) in enumerate(shown.items()):
            losses = torch.tensor(r.result.losses)
            window = max(1, len(losses) // 20)
            smooth = losses.unfold(0, window, max(1, len(losses) // points)).mean(1)
            at = torch.linspace(window, len(losses), len(smooth)) * (
                r.result.seconds / len(losses) if axis == "seconds" else 1
            )
            axes.plot(at, smooth, label=f"{name}, lr {r.lr:g}", linewidth=1.5, **figures.style(i))
            rows += [{"optimizer": name, axis: x, "loss": y} for x, y in zip(at.tolist(), smooth.tolist(), strict=True)]
        axes.set(xlabel=axis, ylabel="training loss", title=title)
        figures.legend_below(drawn, axes, "optimizer (best of its rates, or the default rate)")
        figures.save(drawn, rows, out / f"loss_against_{axis}")
