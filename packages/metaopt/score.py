"""metaopt score: optimizers x recorded spaces -> scores, table, traces, figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from metabench import catalog, plots, registry, results, summary
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.score import Scores, score

from . import console


def run(config: DictConfig, out: Path) -> str:
    """Score the optimizers named in the configuration and write everything to `out`."""
    recordings = recordings_of(config.spaces)
    scores = scores_of(named(config.optimizers), recordings, config.scoring, config.seed, config.get("repeats"))
    print(summary.summary(scores, config.scoring.noisy))
    write(scores, out, noisy=config.scoring.noisy, recordings=recordings)
    best = summary.ranked(scores)[0]
    return f"best: {best}, mean P {scores.mean(best, estimator=scores.estimators[0])}"


def named(entries: Iterable[str | DictConfig]) -> dict[str, registry.Named]:
    """{label: optimizer} of names, files, or names with options ({name: pso, popsize: 10})."""
    found = {}
    for entry in entries:
        options: dict[str, Any] = {"name": entry} if isinstance(entry, str) else {str(k): v for k, v in entry.items()}
        if "name" not in options:
            raise UserError(f"an optimizer is a name, a file, or {{name: NAME, option: value}}, not {options}")
        one = registry.Named(options.pop("name"), tuple(options.items()))
        found[one.label] = one
    return found


def scores_of(
    names: Mapping[str, str | registry.Named],
    recordings: Sequence[Recording],
    scoring: DictConfig,
    seed: int,
    repeats: int | None = None,
) -> Scores:
    """Score optimizers, given as {label: registered name or file}, with a progress bar."""
    for name in names.values():
        one = registry.Named(name) if isinstance(name, str) else name
        registry.make(one.name, **dict(one.options))  # what is wrong fails before the first run, not in a worker
    repeats = repeats or scoring.repeats
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
