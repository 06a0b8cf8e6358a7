"""metaopt evolve: a generator writes optimizers, recorded spaces score them, LLaMEA selects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from evotune import generators
from evotune.accounting import Caps
from evotune.evolve import EvolutionResult, Progress, evolve
from evotune.export import ARCHIVE
from evotune.jail import JailLimits
from evotune.plan import Plan, plan
from evotune.settings import Settings
from metabench import catalog, results
from metabench.errors import UserError, choose
from metabench.recording import Recording

from . import console
from .score import recordings_of


def run(config: DictConfig, out: Path) -> str:
    """Evolve on the recordings that the configuration names, or take up the run in `resume`."""
    config, folder = (taken_up(config), Path(config.resume).absolute()) if config.resume else (config, out)
    recordings = targeted(config.spaces, config.target)
    if config.dry_run:
        print(planned(config, recordings).describe())
        return "dry run: nothing was asked and nothing evaluated"
    result = evolution(config, recordings, folder)
    print(describe(result))
    if result.score is None:
        raise UserError(result.why_none())
    return f"best: {result.program}, P {result.score:.3f} on fresh seeds"


def taken_up(config: DictConfig) -> DictConfig:
    """The configuration that a run was started with, and what is said otherwise now, such as a higher cap.

    A run that the command did not start has none, and one that is named with groups (evolution=paper) is taken as named;
    `evolve` checks against the archive that it is the same run.
    """
    saved = Path(config.resume) / ".hydra" / "config.yaml"
    given = [
        override.lstrip("+") for override in HydraConfig.get().overrides.task if not override.startswith("resume=")
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
    plain = target.removesuffix("_milo")
    if own := [r for r in recordings if r.kernel.removesuffix("_milo") == plain]:
        return own
    kernels = {name.split("/")[0] for name in catalog.available(spaces.root)}
    choose(plain, {name.removesuffix("_milo") for name in kernels}, "target")
    named = [name for name in kernels if name.removesuffix("_milo") == plain]
    return catalog.select(named, spaces.root, spaces.get("objective"), spaces.get("maximize"))


def planned(config: DictConfig, recordings: list[Recording]) -> Plan:
    """What a run would ask for and take, without asking."""
    model = str(config.generator.get("model", config.generator.name))
    settings = Settings(**_settings(config), seed=config.seed)
    return plan(model, recordings, settings, prices=_prices(config), concurrent=config.generator.get("concurrent", 1))


def _settings(config: DictConfig) -> dict[str, Any]:
    return {str(k): v for k, v in config.evolution.items()} | {"info": config.get("info", False)}


def _prices(config: DictConfig) -> dict[str, tuple[float, float]]:
    return {str(model): (p[0], p[1]) for model, p in config.get("prices", {}).items()}


def _plain(group: DictConfig | None) -> dict[str, Any] | None:
    return None if group is None else {str(k): v for k, v in OmegaConf.to_object(group).items()}  # type: ignore[union-attr]


def evolution(config: DictConfig, recordings: list[Recording], folder: Path) -> EvolutionResult:
    """One evolution with a progress bar that shows the best score so far."""
    options = _plain(config.generator) or {}
    generator = generators.make(str(options.pop("name")), seed=config.seed, **options)
    with console.progress("evolving", config.evolution.calls) as update:

        def note(state: Progress) -> None:
            best = "none valid yet" if state.best is None else f"best P {state.best:.3f}"
            update(state.done, best)

        return evolve(
            generator,
            recordings,
            folder,
            limits=JailLimits(**config.jail),
            caps=Caps(**config.get("caps", {})),
            launcher=_plain(config.get("launcher")),
            prices=_prices(config),
            progress=note,
            resume=(folder / ARCHIVE).exists()
            or bool(config.get("resume")),  # a sweep called again finds its jobs as they were left
            seed=config.seed,
            **_settings(config),
        )


def describe(result: EvolutionResult) -> str:
    """What came out, how candidates failed, what the selection's luck was worth."""
    failed = ", ".join(f"{count} {kind}" for kind, count in sorted(result.failures.items())) or "none"
    lines = [f"{len(result.history)} candidates in {result.seconds:.0f} s ({result.ended}); failed: {failed}"]
    if result.usage["prompt_tokens"] != 0:  # no model was asked
        lines.append("used: " + ", ".join(f"{value} {name}" for name, value in result.usage.items()))
    lines.append(result.savings.describe())
    if result.source is None:
        return "\n".join(lines)
    rows = [[name, f"{sum(p) / len(p):.3f}"] for name, p in result.runs.items()]
    lines += [
        f"best: {result.name}. {result.description}",
        f"P {result.selected_score:.3f} when it was selected, {result.score:.3f} on fresh seeds",
        results.text_table(["space", "P on fresh seeds"], rows),
    ]
    return "\n".join(lines)
