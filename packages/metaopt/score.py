"""metaopt score: optimizers x recorded spaces -> scores, table, traces, figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from evotune.jail import JailLimits
from evotune.jailed import JailedFile
from metabench import catalog, plots, registry, results, summary
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.score import Scores, score

from . import console, transfer

Optimizer = registry.Named | JailedFile | transfer.Informed


def run(config: DictConfig, out: Path) -> str:
    """Score the optimizers named in the configuration and write everything to `out`."""
    recordings = recordings_of(config.spaces)
    optimizers = named(config.optimizers, jail_of(config.jail))
    optimizers = transfer.informed(optimizers, config.transfer, recordings, config.spaces.root)
    scores = scores_of(optimizers, recordings, config.scoring, config.seed, config.get("repeats"))
    print(summary.summary(scores, config.scoring.noisy))
    write(scores, out, noisy=config.scoring.noisy, recordings=recordings)
    if not scores.complete().optimizers:
        raise UserError(f"no optimizer has a score on all spaces; {out / 'scores.txt'} says why")
    best = summary.ranked(scores)[0]
    return f"best: {best}, mean P {scores.mean(best, estimator=scores.estimators[0])}"


def jail_of(config: DictConfig) -> JailLimits | None:
    """What Python files run in; None if the reader trusts them."""
    return JailLimits(cpu_seconds=config.seconds, wall_seconds=config.seconds) if config.enabled else None


def named(entries: Iterable[str | DictConfig], jail: JailLimits | None = None) -> dict[str, Optimizer]:
    """{label: optimizer} of names, files, or names with options ({name: pso, popsize: 10}).

    Args:
        jail: what files run in; None for this process.
    """
    found: dict[str, Optimizer] = {}
    for entry in entries:
        options: dict[str, Any] = {"name": entry} if isinstance(entry, str) else {str(k): v for k, v in entry.items()}
        if "name" not in options:
            raise UserError(f"an optimizer is a name, a file, or {{name: NAME, option: value}}, not {options}")
        one = registry.Named(options.pop("name"), tuple(options.items()))
        if jail is None or not one.name.endswith(".py"):
            found[one.label] = one
        elif one.options:
            raise UserError(
                f"{one.name}: a file with options runs in this process only; say jail=false if you trust it"
            )
        else:
            found[one.label] = JailedFile(one.name, jail)
    return found


def scores_of(
    names: Mapping[str, str | Optimizer],
    recordings: Sequence[Recording],
    scoring: DictConfig,
    seed: int,
    repeats: int | None = None,
) -> Scores:
    """Score optimizers, given as {label: registered name, or what `named` found}, with a progress bar."""
    for name in names.values():
        one = registry.Named(name) if isinstance(name, str) else name
        if isinstance(one, registry.Named):
            registry.make(one.name, **dict(one.options))  # what is wrong fails before the first run, not in a worker
        elif isinstance(one, JailedFile) and scoring.overhead != "none":
            raise UserError(
                f"scoring.overhead={scoring.overhead} is measured in this process; say jail=false if you trust {one.path}"
            )
    repeats = scoring.repeats if repeats is None else repeats
    if not isinstance(repeats, int):
        raise UserError(f"repeats must be a whole number, not {repeats!r}")
    total = len(names) * len(recordings) * repeats
    with console.progress("scoring", total) as update:
        counter = iter(range(1, total + 1))
        return score(
            names,
            recordings,
            repeats,
            seed,
            progress=lambda name, space, _: update(next(counter), f"{name} on {space}"),
            estimators=list(scoring.estimators),
            workers=scoring.workers,
            overhead=scoring.overhead,
        )


def recordings_of(spaces: DictConfig) -> list[Recording]:
    """The recordings that a `spaces` group names."""
    return catalog.select(list(spaces.recordings), spaces.root, spaces.get("objective"), spaces.get("maximize"))


def table(scores: Scores) -> str:
    """P of each optimizer on each space and in the mean, best first, with 95 % intervals."""
    return summary.table(scores, scores.estimators[0])


def write(
    scores: Scores,
    out: Path,
    stem: str = "scores",
    noisy: Sequence[str] = (),
    recordings: Sequence[Recording] = (),
) -> None:
    """scores.csv/.parquet, everything printed as text, the traces, the figures."""
    results.write_table(results.score_rows(scores), out / stem)
    results.write_atomic(out / f"{stem}.txt", summary.summary(scores, noisy) + "\n")
    results.write_traces(scores, out / f"{stem}_traces.npz")
    plots.draw_all(scores, out, recordings)
