"""metaopt metatrain: meta-weights of your own, from tasks that the machine makes itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch import distributed as dist

from lopt import SmallFCWeights
from lopt.metatrain import checkpoint, train
from lopt.metatrain.lane import Unroll
from lopt.metatrain.meta_weights import flatten, unflatten
from lopt.metatrain.outer import Outer
from metabench import figures
from metabench.errors import UserError

from . import console


def run(config: DictConfig, out: Path) -> str:
    """Meta-train, package what came of it: weights/ (model.safetensors, config.json, README.md), curve.csv, figure."""
    try:
        settings = settings_of(config)
        start = None if config.start is None else flatten(SmallFCWeights.from_pretrained(config.start))
        if config.workers > 1:
            with tempfile.TemporaryDirectory(prefix="metatrain-") as meeting:
                arguments = (
                    settings,
                    out,
                    start,
                    config.resume,
                    config.threads,
                    config.workers,
                    f"file://{meeting}/at",
                )
                torch.multiprocessing.spawn(work, arguments, nprocs=config.workers)
        else:
            work(0, settings, out, start, config.resume, config.threads)
        final = checkpoint.load(out / checkpoint.CHECKPOINT)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    theta, history = final["outer"]["average"], final["history"]
    scales = checkpoint.scales(final)
    folder = unflatten(theta, scales=scales).save_pretrained(
        out / "weights", description=f"meta-trained on {config.tasks}, see ../.hydra"
    )
    if history:
        draw(history, out / "meta_loss")
    call = "SmallFCLOpt(model.parameters()" if scales.hidden_lr_mult is None else "MuLO(lopt.mulo_groups(model)"
    return f"{final['step']} outer steps; use them: lopt.{call}, weights={str(folder)!r})"


def settings_of(config: DictConfig) -> train.Settings:
    """The group `meta` and the verb's own fields as the loop's settings."""
    values: dict[str, Any] = OmegaConf.to_container(config.meta, resolve=True)  # type: ignore[assignment]
    unroll, outer = Unroll(**values.pop("unroll")), Outer(**values.pop("outer"))
    tasks = config.tasks if isinstance(config.tasks, str) else dict(config.tasks)
    minutes = None if config.steps is not None else config.minutes
    return train.Settings(
        tasks=tasks, steps=config.steps, minutes=minutes, seed=config.seed, unroll=unroll, outer=outer, **values
    )


def work(
    rank: int, settings: train.Settings, out: Path, start: Tensor | None, resume: bool, threads: int, world: int = 1,
    meeting: str = "",
) -> None:  # fmt: skip
    """One process of a meta-training; process 0 shows how far it is."""
    torch.set_num_threads(threads)
    if world > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    try:
        training = train.MetaTraining(settings, out, start)
        if resume:
            training.resume()
        if rank:
            training.run()
            return
        total = settings.steps or round(60 * (settings.minutes or 0))
        with console.progress("meta-training", total) as bar:
            training.run(lambda done, _, note: bar(done, note))
    finally:
        if world > 1:
            dist.destroy_process_group()


def draw(history: list[dict[str, Any]], stem: Path) -> None:
    """Meta-loss of each family over outer steps."""
    drawn, axes = figures.figure()
    families = sorted({key for row in history for key in row if key.startswith("loss_")})
    for i, key in enumerate(families):
        points = [(row["step"], row[key]) for row in history if key in row]
        axes.plot(*zip(*points, strict=True), label=key.removeprefix("loss_"), linewidth=1.2, **figures.style(i))
    axes.set(xlabel="outer step", ylabel="meta-loss: mean log(loss / first loss + floor)")
    figures.legend_below(drawn, axes, "family")
    columns = list(dict.fromkeys(key for row in history for key in row))
    figures.save(drawn, [{key: row.get(key) for key in columns} for row in history], stem)
