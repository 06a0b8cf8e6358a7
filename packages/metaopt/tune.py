"""metaopt tune: an optimizer tunes a kernel on this machine -> tuned entry, T4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from evotune import zoo
from evotune.measure import Outcome, Tuning, tuned
from evotune.measure import tune as tune_kernel
from evotune.measure.jailed import JailedTuner
from metabench import folders, kernel, results
from metabench.errors import UserError
from metabench.space import Space

from . import console, score, transfer


def run(config: DictConfig, out: Path) -> str:
    """Tune, print what was found, and keep it where the step looks it up."""
    tuner = informed(config) if config.transfer else config.tuner
    tuning = tune(config, tuner, out, transfer.USES_SOURCES if config.transfer else None)
    print(describe(tuning))
    for path in keep(tuning, config):
        print(f"kept in {path}")
    return result_line(tuning)


def informed(config: DictConfig) -> Callable[..., Any]:
    """gp_transfer with the recordings that the configuration names.

    Raises:
        UserError: another tuner was asked for, or a source that is none (`transfer.sources_of`).
    """
    if config.tuner not in (zoo.DEFAULT, transfer.USES_SOURCES):
        raise UserError(f"{config.tuner} cannot use transfer; leave tuner out, or say tuner={transfer.USES_SOURCES}")
    space = Space.from_t1(kernel.find(config.kernel).space_definition())
    sources = transfer.sources_of(config.transfer, config.kernel, space, config.device)
    return transfer.Informed(tuple(sources))()


def tune(config: DictConfig, tuner: str | Callable[..., Any], out: Path, name: str | None = None) -> Tuning:
    """One tuning run with a progress bar; `config` is the group `tuning` and a seed.

    Args:
        tuner: a name, a callable, or the path of a Python file, which runs in the jail unless `config.jail` says otherwise.
    """
    optimizer: Any = tuner
    limits = score.jail_of(config.jail)
    if isinstance(tuner, str) and tuner.endswith(".py") and limits is not None:
        optimizer, name = JailedTuner(tuner, limits), name or Path(tuner).stem
    size = len(Space.from_t1(kernel.find(config.kernel).space_definition()))
    most = min(config.budget, size) if isinstance(config.budget, int) else size
    with console.progress(f"tuning {config.kernel}", most) as update:

        def note(done: int, most: int, outcome: Outcome, best: float | None) -> None:
            update(done, f"best {best:.3f} ms" if best is not None else f"failed: {outcome.status}")

        return tune_kernel(
            kernel.find(config.kernel),
            optimizer,
            evaluations=config.budget,
            seconds=config.seconds,
            seed=config.seed,
            device=config.device,
            folder=out,
            name=name,
            workers=config.workers,
            finalists=config.finalists,
            rounds=config.rounds,
            progress=note,
            backend=config.backend,
            realtime=config.realtime,
        )


def describe(tuning: Tuning) -> str:
    """Default and best configuration, their times and ratio, how the run ended, what failed."""
    rows = [["best", f"{tuning.time:.3f} ms", _written(tuning.configuration)]]
    if tuning.default_time is not None:
        rows.insert(
            0, ["default", f"{tuning.default_time:.3f} ms", "what the source takes here where nothing is chosen"]
        )
    failures = ", ".join(f"{count} {kind}" for kind, count in tuning.failures.items()) or "none"
    ended = f"{tuning.ended}: {tuning.error}" if tuning.error else tuning.ended
    lines = [results.text_table(["", "median time", "configuration"], rows)]
    lines.append(f"{tuning.evaluations} evaluations by {tuning.tuner} (ended: {ended}), failures: {failures}")
    if tuning.speedup:
        lines.append("default / best, run in turns: {:.2f} (quartiles {:.2f} to {:.2f})".format(*tuning.speedup))
    return "\n".join(lines)


def keep(tuning: Tuning, config: DictConfig) -> list[Path]:
    """Copy the entry to the user's data folder, which the step reads first, and into the checkout if asked to."""
    name = f"{tuning.device}.json"
    places = [folders.data() / "tuned" / tuning.kernel / name] if config.keep else []
    places += [kernel.find(tuning.kernel).tuned() / name] if config.adopt else []
    return [tuned.keep(tuning.entry(), place) for place in places]


def result_line(tuning: Tuning) -> str:
    """The figure of a tuning run."""
    ratio = f", {tuning.speedup[0]:.2f} times the default's speed" if tuning.speedup else ""
    return f"{tuning.kernel}: best {tuning.time:.3f} ms{ratio}"


def _written(configuration: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration.items())
