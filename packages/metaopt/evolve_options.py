"""What `metaopt evolve` is told, as `evotune` takes it: spaces, settings, prompts, prices, the options of a run taken up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from evotune.plan import Plan, plan
from evotune.prompts import Prompts
from evotune.settings import Settings
from metabench import catalog
from metabench.errors import choose
from metabench.recording import Recording

from .score import recordings_of

Prices = dict[str, tuple[float, float]]


def taken_up(config: DictConfig) -> DictConfig:
    """The configuration that a run was started with, and what is said otherwise now, such as a higher cap.

    A run that the command did not start has none, and one that is named with groups (evolution=paper) is taken as named;
    `evolve` checks against the archive that it is the same run.
    """
    saved = Path(config.resume) / ".hydra" / "config.yaml"
    given = [
        override.lstrip("+")
        for override in HydraConfig.get().overrides.task
        if not override.startswith(("resume=", "hydra."))
    ]
    groups = {name.split("@")[0] for name in HydraConfig.get().runtime.choices}
    if not saved.is_file() or any(override.partition("=")[0] in groups for override in given):
        return config
    merged = OmegaConf.merge(OmegaConf.load(saved), OmegaConf.from_dotlist(given))
    assert isinstance(merged, DictConfig)
    return merged


def targeted(spaces: DictConfig, target: str | None) -> list[Recording]:
    """Of these spaces the recordings of one application; if they have none of it, all that their root has.

    Args:
        target: a kernel, with or without the suffix that its hub gives it: "dedispersion" is dedispersion_milo too; None for all.

    Raises:
        UserError: the root has no such kernel; the message lists those it has.
    """
    recordings = recordings_of(spaces)
    if target is None:
        return recordings
    plain = str(target).removesuffix("_milo")
    if own := [r for r in recordings if r.kernel.removesuffix("_milo") == plain]:
        return own
    kernels = {name.split("/")[0] for name in catalog.available(spaces.root)}
    choose(plain, {name.removesuffix("_milo") for name in kernels}, "target")
    named = [name for name in kernels if name.removesuffix("_milo") == plain]
    return catalog.select(named, spaces.root, spaces.get("objective"), spaces.get("maximize"))


def planned(config: DictConfig, recordings: list[Recording]) -> Plan:
    """What a run would ask for and take, without asking."""
    model = str(config.generator.get("model", config.generator.name))
    members = config.generator.get("members", [config.generator])
    concurrent = sum(member.get("concurrent", 1) for member in members)
    return plan(
        model, recordings, Settings(**settings(config), seed=config.seed), prompts(config), prices(config), concurrent
    )


def prompts(config: DictConfig) -> Prompts:
    """What a model is told."""
    return Prompts().changed(**(plain(config.get("prompts")) or {}))


def settings(config: DictConfig) -> dict[str, Any]:
    """Fields of `evotune.settings.Settings`, but for the seed."""
    return {str(k): v for k, v in config.evolution.items()} | {"info": config.get("info", False)}


def prices(config: DictConfig) -> Prices:
    """By model, USD for a million tokens of prompt and of reply; of a mixture, too, as its weights have it."""
    known: Prices = {str(model): (p[0], p[1]) for model, p in config.get("prices", {}).items()}
    members = config.generator.get("members", [])
    named = [(str(member.get("model", member.name)), float(member.get("weight", 1))) for member in members]
    if named and all(model in known for model, _ in named):
        ask, say = (sum(w * known[model][i] for model, w in named) / sum(w for _, w in named) for i in (0, 1))
        known[str(config.generator.name)] = (ask, say)
    return known


def plain(group: DictConfig | None) -> dict[str, Any] | None:
    """A group as a dict."""
    return None if group is None else {str(k): v for k, v in OmegaConf.to_object(group).items()}  # type: ignore[union-attr]
