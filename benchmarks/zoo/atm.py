"""The zoo's Gaussian processes under the estimator `atm`, to be read beside published numbers.

    python benchmarks/zoo/atm.py --root HUB [--variants "gp_general;gp_transfer"] [--repeats 25]

Whole budgets, with the seeds of `measure.py`. A run that has measured the optimum goes on at random: its best is what it was, and
only the spacing of its late points is not the optimizer's. What that changes is measured too (`check`, whole runs beside those on
the spaces of small budgets). A cell is one variant on one space; cells are written as they are done, and a second call goes on
where the first stopped. Each keeps quantiles of the deviations of its bootstrap; the interval of a mean is drawn from these.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import KERNELS, RENAMINGS, TEST, TRAIN, VARIANTS, Measure, renamed

from metabench import atm, provenance
from metabench.files import write_json
from metabench.pairs import seeds_of
from metabench.recording import Recording
from metabench.replay import Stop, replay

OUT = Path(__file__).with_suffix(".json")
OURS = "gp_general;gp_transfer;gp_general, blind"
SPACES = [f"{k}/{d}" for k in KERNELS for d in TRAIN + TEST]
SPLITS = {
    "all 12": SPACES,
    "train": [s for s in SPACES if s.endswith(TRAIN)],
    "test": [s for s in SPACES if s.endswith(TEST)],
}
CHECKED = ("convolution_milo/MI250X", "convolution_milo/W7800", "convolution_milo/A4000", "dedispersion_milo/A4000")
CHECK_REPEATS = 5
QUANTILES = np.linspace(0.0025, 0.9975, 200)


class Found(Stop):
    """The optimum was measured."""


class Watched:
    """`func`, which raises `Found` when it has measured the optimum."""

    def __init__(self, func: Any, optimum: float) -> None:
        self.func, self.optimum = func, optimum
        self.asked: set[tuple[Any, ...]] = set()

    def __call__(self, config: Any, check_restrictions: bool = True) -> float:
        self.asked.add(tuple(config))
        cost = self.func(config)
        if cost <= self.optimum:
            raise Found("optimum")
        return cost

    @property
    def budget_spent_fraction(self) -> float:
        return self.func.budget_spent_fraction


def then_at_random(optimizer: Callable[..., Any], recording: Recording) -> Callable[..., Any]:
    """The optimizer until it has measured the optimum, and from there on random configurations."""
    optimum = float(recording.losses.min())

    def run(func: Any, searchspace: Any) -> None:
        watched = Watched(func, optimum)
        try:
            optimizer(watched, searchspace)
        except Found:
            for place in np.random.default_rng(0).permutation(len(searchspace.list)):
                if tuple(config := searchspace.list[place]) not in watched.asked:
                    func(config)

    return run


def cell(measure: Measure, variant: str, space: str, repeats: int, whole: bool = False) -> dict[str, Any]:
    """P under `atm`, and quantiles of its deviation over resampled runs."""
    optimizer, options, renaming = VARIANTS[variant]
    recording = measure.get(space)[0]
    factory = measure.factory(optimizer, options, space)
    played = renamed(recording, RENAMINGS[renaming]) if renaming else recording
    axis, traces, seeds = atm.axis(played), [], seeds_of(recording.name, 0, repeats)
    for seed in seeds:
        run = factory() if whole else then_at_random(factory(), played)
        traces.append(replay(run, played, seed=seed, session=axis.session()))
        if traces[-1].error:
            raise RuntimeError(f"{variant} on {space} with seed {seed}: {traces[-1].error}")
    deviations = atm.resampled(traces, axis)
    return {
        "p": float(atm.performance(traces, axis, seeds[0]).mean()),
        "repeats": repeats,
        "deviations": [round(float(q), 4) for q in np.quantile(deviations, QUANTILES)],
    }


def mean_of(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean over spaces, its interval from independent draws of the spaces' deviations."""
    rng = np.random.default_rng(0)
    drawn = np.mean([rng.choice(c["deviations"], 10_000) for c in cells], axis=0)
    estimate = atm.interval(float(np.mean([c["p"] for c in cells])), drawn)
    return {
        "mean": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "repeats": sorted({c["repeats"] for c in cells}),
    }


def store(report: dict[str, Any]) -> None:
    """Write cells and summary."""
    cells = report["cells"]
    report["summary"] = {
        variant: {
            split: mean_of([cells[f"{variant} | {s}"] for s in spaces])
            for split, spaces in SPLITS.items()
            if all(f"{variant} | {s}" in cells for s in spaces)
        }
        for variant in dict.fromkeys(key.split(" | ")[0] for key in cells)
    }
    report |= {"command": "python benchmarks/zoo/atm.py --root HUB", "provenance": provenance.stamp()}
    write_json(OUT, report)


def main() -> None:
    """Fill in the cells that are missing, then the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--variants", default=OURS, help="separated by semicolons")
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    measure = Measure(options.root)
    report = json.loads(OUT.read_text()) if OUT.is_file() else {}
    report = {"cells": report.get("cells", {}), "check": report.get("check", {})}
    for variant in options.variants.split(";"):
        for space in SPACES:
            key, started = f"{variant} | {space}", time.time()
            if report["cells"].get(key, {}).get("repeats", 0) >= options.repeats:
                continue
            report["cells"][key] = cell(measure, variant, space, options.repeats)
            store(report)
            print(f"{key}: {report['cells'][key]['p']:.3f} ({time.time() - started:.0f} s)", flush=True)
    for space in (s for s in CHECKED if s not in report["check"]):
        both = [cell(measure, "gp_general", space, CHECK_REPEATS, whole)["p"] for whole in (True, False)]
        report["check"][space] = {
            "whole runs": both[0],
            "at random after the optimum": both[1],
            "repeats": CHECK_REPEATS,
        }
        store(report)
    print({variant: {s: f"{e['mean']:.3f} [{e['low']:.3f}, {e['high']:.3f}]" for s, e in splits.items()}
           for variant, splits in report["summary"].items()})  # fmt: skip


if __name__ == "__main__":
    main()
