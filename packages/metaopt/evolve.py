"""metaopt evolve: a generator writes optimizers, recorded spaces score them, LLaMEA selects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from evotune import generators
from evotune.accounting import Caps
from evotune.evolve import EvolutionResult, Progress, evolve
from evotune.jail import JailLimits
from evotune.plan import Plan, plan
from evotune.settings import Settings
from metabench import results
from metabench.errors import UserError, choose
from metabench.recording import Recording

from . import console
from .score import recordings_of


def run(config: DictConfig, out: Path) -> str:
    """Evolve on the recordings that the configuration names, or take up the run in `resume`."""
    if config.dry_run:
        print(planned(config, targeted(recordings_of(config.spaces), config.target)).describe())
        return "dry run: nothing was asked and nothing evaluated"
    folder = Path(config.resume).absolute() if config.resume else out
    result = evolution(config, targeted(recordings_of(config.spaces), config.target), folder)
    print(describe(result))
    if result.score is None:
        raise UserError(result.why_none())
    return f"best: {result.program}, P {result.score:.3f} on fresh seeds"


def targeted(recordings: list[Recording], target: str | None) -> list[Recording]:
    """The recordings of one application ("dedispersion" names the kernel dedispersion_milo too), or all."""
    if target is None:
        return recordings
    kernels = {r.kernel.removesuffix("_milo") for r in recordings}
    choose(target.removesuffix("_milo"), kernels, "target among these spaces")
    return [r for r in recordings if r.kernel.removesuffix("_milo") == target.removesuffix("_milo")]


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
            resume=bool(config.get("resume")),
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
