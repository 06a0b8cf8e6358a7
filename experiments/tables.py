"""The tables of an ablation, from whatever runs of it exist.

    python experiments/tables.py runs/evolve/paper_ablation [--info true,false] [--targets convolution,dedispersion] [--seeds 5]
        [--score paper_test --repeats 25]  [--out experiments/paper_ablation/tables.md]

Every run is a folder with evolution.json. Without --score, the tables hold the scores on the training spaces, on fresh seeds,
that the runs themselves measured. With --score, the best program of every run is first scored (in the jail) on that group of
spaces, all applications of it, and the tables hold these scores; they are kept in the run's folder, and not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from evotune.jailed import JailedFile
from metabench import catalog
from metabench.files import read_json, write_atomic, write_json
from metabench.score import score
from metaopt.hydra_app import configs

NOT_RUN = "not run"
_SEED = 2_000_000  # away from the seeds of selections and confirmations
Key = tuple[bool, str, int]  # info, target, seed


@dataclass(frozen=True)
class Run:
    """One run: where it is, and P by recording."""

    folder: Path
    scores: Mapping[str, float]

    def on(self, target: str) -> float | None:
        """Mean P over the recordings of an application; None if there are none."""
        own = [p for name, p in self.scores.items() if plain(name.split("/")[0]) == target]
        return statistics.mean(own) if own else None


def plain(kernel: str) -> str:
    """A kernel's name without its hub's suffix."""
    return kernel.removesuffix("_milo")


def find(folder: Path) -> tuple[dict[Key, Path], set[str]]:
    """The finished runs below a folder that found a program, and the models that wrote."""
    found, models = {}, set()
    for path in sorted(folder.rglob("evolution.json")):
        told = read_json(path)
        kernels = {plain(name.split("/")[0]) for name in told["settings"]["recordings"]}
        if told["best"] is not None and len(kernels) == 1:
            found[bool(told["settings"]["info"]), kernels.pop(), int(told["settings"]["seed"])] = path.parent
            models.add(told["settings"]["model"])
    return found, models


def own_scores(folder: Path) -> dict[str, float]:
    """P on fresh seeds, by recording, as the run measured it."""
    return {name: statistics.mean(p) for name, p in read_json(folder / "evolution.json")["best"]["runs"].items()}


def scored(folder: Path, spaces: str, repeats: int, root: str | None) -> dict[str, float]:
    """P on a group of spaces, by recording; from the file of an earlier call if there is one."""
    kept = folder / f"scores_{spaces}_{repeats}.json"
    if not kept.is_file():
        group: Any = OmegaConf.load(configs() / "spaces" / f"{spaces}.yaml")
        recordings = catalog.select(list(group.recordings), root or group.root)
        found = score({"best": JailedFile(str(folder / "best.py"))}, recordings, repeats, seed=_SEED)
        write_json(kept, {name: found.on("best", name).mean for name in found.recordings})
    return {str(name): float(p) for name, p in read_json(kept).items()}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def cell(value: float | None) -> str:
    """A score, or that there is none."""
    return NOT_RUN if value is None else f"{value:.3f}"


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there; None if none is."""
    there = [value for value in values if value is not None]
    return statistics.mean(there) if there else None


def percent(better: float | None, than: float | None) -> str:
    """100 (better - than) / |than|."""
    return NOT_RUN if better is None or than is None else f"{100 * (better - than) / abs(than):+.1f} %"


def by_seed(runs: Mapping[Key, Run], infos: Sequence[bool], targets: Sequence[str], seeds: range) -> str:
    """P of every run on its own application."""
    rows = []
    for info, target in itertools.product(infos, targets):
        values = [runs[key].on(target) if (key := (info, target, s)) in runs else None for s in seeds]
        there = [value for value in values if value is not None]
        spread = f"{statistics.stdev(there):.3f}" if len(there) > 1 else "-"
        rows.append([target, str(info).lower(), *map(cell, values), cell(mean(values)), spread])
    return table(["target", "info", *(f"seed {s}" for s in seeds), "mean", "s.d. over seeds"], rows)


def information(runs: Mapping[Key, Run], targets: Sequence[str]) -> str:
    """What describing the space is worth."""
    rows, gains = [], []
    for target in targets:
        told, blind = (
            mean([run.on(target) for key, run in runs.items() if key[:2] == (i, target)]) for i in (True, False)
        )
        rows.append([target, cell(told), cell(blind), percent(told, blind)])
        gains.append(None if told is None or blind is None else 100 * (told - blind) / abs(blind))
    average = mean(gains) if None not in gains else None
    rows.append(["mean of the applications", "", "", NOT_RUN if average is None else f"{average:+.1f} %"])
    return table(["application", "P with info", "P without", "improvement"], rows)


def application(runs: Mapping[Key, Run], targets: Sequence[str]) -> str:
    """What evolving for the application is worth: on each, programs that were evolved for it and for others."""
    rows = []
    for target in targets:
        own = mean([run.on(target) for key, run in runs.items() if key[1] == target])
        others = mean([run.on(target) for key, run in runs.items() if key[1] != target])
        rows.append([target, cell(own), cell(others), percent(own, others)])
    return table(["application", "P, evolved for it", "P, evolved for another", "improvement"], rows)


def page(folder: Path, options: argparse.Namespace) -> str:
    """All tables, with how each number is formed."""
    found, models = find(folder)
    infos = [word == "true" for word in options.info.split(",")]
    targets, seeds = options.targets.split(","), range(options.seeds)
    if options.score:
        runs = {
            key: Run(path, scored(path, options.score, options.repeats, options.root)) for key, path in found.items()
        }
        where = f"on `{options.score}`, {options.repeats} repeats, seeds that no evolution saw"
    else:
        runs = {key: Run(path, own_scores(path)) for key, path in found.items()}
        where = "on the training spaces, on the fresh seeds of each run's confirmation"
    expected = set(itertools.product(infos, targets, seeds))
    done = f"{len(expected & set(runs))} of {len(expected)} runs exist; model: {', '.join(sorted(models)) or NOT_RUN}."
    return f"""{done} P is the mean over the application's spaces (estimator `direct`), {where}.

## Every run on its own application

{by_seed(runs, infos, targets, seeds)}

## What describing the space is worth

{information(runs, targets)}

Improvement: 100 (P with info - P without) / |P without|, where each P is the mean over all runs that were evolved for the
application; the last row is the mean of the percentages above it.

## What evolving for the application is worth

{application(runs, targets)}

Improvement: 100 (P evolved for it - P evolved for another) / |P evolved for another|, where each P is the mean, on this
application's spaces, over all runs that were, or were not, evolved for it. It needs `--score`: a run itself measures its own
application only.
"""


def main() -> None:
    """Print the tables, or write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of the sweep")
    parser.add_argument("--info", default="true,false", help="which rows there should be")
    parser.add_argument("--targets", default="convolution,dedispersion", help="which applications there should be")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds there should be, from 0")
    parser.add_argument("--score", metavar="SPACES", help="group of spaces (configs/spaces) to score the programs on")
    parser.add_argument(
        "--root", help="folder of the benchmark hub, if it is not where `metaopt spaces download` puts it"
    )
    parser.add_argument("--repeats", type=int, default=25, help="of --score")
    parser.add_argument("--out", type=Path, help="file to write to")
    options = parser.parse_args()
    text = page(options.runs, options)
    print(text if options.out is None else write_atomic(options.out, text))


if __name__ == "__main__":
    main()
