"""metaopt evolve: a generator writes optimizers, recorded spaces score them, LLaMEA selects."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from evotune import generators
from evotune.accounting import Caps
from evotune.evolve import EvolutionResult, Progress, evolve
from evotune.export import ARCHIVE
from evotune.jail import JailLimits
from metabench import results
from metabench.errors import UserError
from metabench.recording import Recording

from . import console
from . import evolve_options as options


def run(config: DictConfig, out: Path) -> str:
    """Evolve on the recordings that the configuration names, or take up the run in `resume`."""
    config, folder = (options.taken_up(config), Path(config.resume).absolute()) if config.resume else (config, out)
    recordings = options.targeted(config.spaces, config.target)
    if config.dry_run:
        print(options.planned(config, recordings).describe())
        return "dry run: nothing was asked and nothing evaluated"
    result = evolution(config, recordings, folder)
    print(describe(result))
    if result.score is None:
        raise UserError(result.why_none())
    return f"best: {result.program}, P {result.score:.3f} on fresh seeds"


def evolution(config: DictConfig, recordings: list[Recording], folder: Path) -> EvolutionResult:
    """One evolution with a progress bar that shows the best score so far."""
    chosen = options.plain(config.generator) or {}
    generator = generators.make(str(chosen.pop("name")), seed=config.seed, **chosen)
    # A sweep that is called again finds its jobs as they were left.
    resume = bool(config.get("resume")) or (folder / ARCHIVE).exists()
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
            launcher=options.plain(config.get("launcher")),
            prompts=options.prompts(config),
            prices=options.prices(config),
            progress=note,
            resume=resume,
            seed=config.seed,
            **options.settings(config),
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
