"""metaopt score: optimizers x recorded spaces -> scores, table, figure."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from metabench import catalog, plots, registry, results
from metabench.recording import Recording
from metabench.score import Scores, score

from . import console


def run(config: DictConfig, out: Path) -> str:
    """Score the optimizers named in the configuration and write everything to `out`."""
    recordings = recordings_of(config.spaces)
    factories = {Path(name).stem if name.endswith(".py") else name: registry.make(name) for name in config.optimizers}
    runs = len(factories) * len(recordings) * config.scoring.repeats
    with console.progress("scoring", runs) as update:
        counter = iter(range(1, runs + 1))
        scores = score(
            factories,
            recordings,
            config.scoring.repeats,
            config.seed,
            progress=lambda name, space, _: update(next(counter), f"{name} on {space}"),
        )
    print(table(scores))
    write(scores, out)
    best = max(scores.optimizers, key=lambda name: scores.mean(name).mean)
    return f"best: {best}, mean P {scores.mean(best)}"


def recordings_of(spaces: DictConfig) -> list[Recording]:
    """The recordings that a `spaces` group names."""
    return catalog.select(list(spaces.recordings), spaces.root)


def table(scores: Scores) -> str:
    """P of each optimizer on each space and in the mean, best first, with 95 % intervals."""
    order = sorted(scores.optimizers, key=lambda name: -scores.mean(name).mean)
    rows = [
        [
            name,
            *(format(scores.on(name, space), ".2f") for space in scores.recordings),
            format(scores.mean(name), ".3f"),
        ]
        for name in order
    ]
    return results.text_table(["P (direct), 95 % interval", *scores.recordings, "mean"], rows)


def write(scores: Scores, out: Path, stem: str = "scores") -> None:
    """scores.csv/.parquet, the table as text, the figure of performance over time."""
    results.write_table(results.score_rows(scores), out / stem)
    results.write_atomic(out / f"{stem}.txt", table(scores) + "\n")
    title = f"{len(scores.recordings)} spaces, {scores.repeats} repeats"
    plots.performance_over_time(scores, out / "performance_over_time", title)
