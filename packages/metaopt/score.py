"""metaopt score: optimizers x recorded spaces -> scores, table, traces, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from metabench import catalog, plots, registry, results, summary
from metabench.recording import Recording
from metabench.score import Scores, score

from . import console


def run(config: DictConfig, out: Path) -> str:
    """Score the optimizers named in the configuration and write everything to `out`."""
    recordings = recordings_of(config.spaces)
    names = {Path(name).stem if name.endswith(".py") else name: name for name in config.optimizers}
    scores = scores_of(names, recordings, config.scoring, config.seed, config.get("repeats"))
    print(summary.summary(scores, config.scoring.noisy))
    write(scores, out, noisy=config.scoring.noisy, recordings=recordings)
    best = summary.ranked(scores)[0]
    return f"best: {best}, mean P {scores.mean(best, estimator=scores.estimators[0])}"


def scores_of(
    names: Mapping[str, str],
    recordings: Sequence[Recording],
    scoring: DictConfig,
    seed: int,
    repeats: int | None = None,
) -> Scores:
    """Score optimizers, given as {label: registered name or file}, with a progress bar."""
    for name in names.values():
        registry.make(name)  # a wrong name fails before the first run, not in a worker
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
