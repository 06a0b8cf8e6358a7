"""The field's optimizers on the twelve public spaces, under both estimators: do published numbers come out again?

    python benchmarks/scoring_peers.py --root HUB [--repeats 50] [--estimators atm,direct] [--optimizers a,b]
    python benchmarks/scoring_peers.py --root HUB --spread genetic_algorithm convolution_milo/W6600

Kernel Tuner's and pyATF's strategies run as these run them (a strategy that returns early is not started again). Every cell is
written when it is done, into benchmarks/scoring_peers.json; a second run goes on where the first one stopped. `--spread` measures
one cell of `atm` twenty times over: how far apart two published numbers may be that measure the same.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evotune.adapters.kernel_tuner import KernelTunerStrategy
from metabench import atm, bootstrap, catalog, pairs, provenance, registry
from metabench.baseline import baseline
from metabench.files import write_json
from metabench.recording import Recording
from metabench.replay import replay
from metabench.score import performance

OUT = Path(__file__).with_suffix(".json")
PUBLISHED = {  # 12-space means under atm, with the standard errors of that measurement (docs/scoring.md)
    "hybrid_vndx": (0.371, 0.056), "adaptive_tabu_greywolf": (0.395, 0.036), "diff_evo": (0.344, 0.029), "pso": (0.242, 0.050),
    "genetic_algorithm": (0.210, 0.044), "pyatf_de": (0.202, 0.041), "simulated_annealing": (0.093, 0.045),
    "random_search": (0.008, 0.034),
}  # fmt: skip
PUBLISHED_CELLS = {"genetic_algorithm convolution_milo/W6600": 0.09}  # the one that decides a mean
BATCHES = 20
SPLIT = ("A100", "A4000", "MI250X", "A6000", "W6600", "W7800")


def main() -> None:
    """Fill in the cells that are missing, then the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--estimators", default="atm,direct")
    parser.add_argument("--optimizers", default=",".join(sorted(PUBLISHED, key=lambda n: PUBLISHED[n][0])))
    parser.add_argument("--spread", nargs=2, metavar=("OPTIMIZER", "SPACE"))
    options = parser.parse_args()
    names = [f"{kernel}_milo/{device}" for kernel in ("convolution", "dedispersion") for device in SPLIT]
    recordings = catalog.select(names, options.root)
    report = json.loads(OUT.read_text()) if OUT.is_file() else {"cells": {}}
    if options.spread:
        optimizer, space = options.spread
        recording = next(r for r in recordings if r.name == space)
        report.setdefault("spread", {})[f"{optimizer} {space}"] = spread(optimizer, recording, options.repeats)
        write_json(OUT, report)
        return
    for estimator in options.estimators.split(","):
        for optimizer in options.optimizers.split(","):
            if optimizer not in registry.available():
                print(f"{optimizer} is not installed here, left out")
                continue
            for recording in recordings:
                key = f"{estimator} {optimizer} {recording.name}"
                if report["cells"].get(key, {}).get("repeats", 0) < options.repeats:
                    report["cells"][key] = cell(estimator, optimizer, recording, options.repeats, options.seed)
                    write(report, options)
    write(report, options)
    for line in report["means"]:
        print(line)


def spread(optimizer: str, recording: Recording, repeats: int) -> dict[str, Any]:
    """How P under `atm` varies between batches of runs."""
    ax, factory = atm.axis(recording), as_its_authors_run_it(optimizer)
    p = []
    for batch in range(BATCHES):
        seeds = pairs.seeds_of(recording.name, 1_000_000 + batch * repeats, repeats)
        traces = [replay(factory(), recording, seed=seed, session=ax.session()) for seed in seeds]
        p.append(float(atm.performance(traces, ax, seeds[0]).mean()))
    return {
        "batches": BATCHES, "repeats": repeats, "mean": float(np.mean(p)), "sd": float(np.std(p, ddof=1)), "least": min(p),
        "most": max(p), "published": PUBLISHED_CELLS.get(f"{optimizer} {recording.name}"),
    }  # fmt: skip


@dataclass(frozen=True)
class OnKernelTunersSpace:
    """A strategy of Kernel Tuner on Kernel Tuner's own search space, whose order the first population of diff_evo depends on."""

    name: str

    def __call__(self) -> Any:
        """A fresh optimizer."""
        strategy = KernelTunerStrategy(self.name, restart=False)
        return lambda func, searchspace: strategy(
            func, kernel_tuners(json.dumps(searchspace.tune_params), *searchspace.restrictions)
        )


@cache
def kernel_tuners(tune_params: str, *restrictions: str) -> Any:
    """Kernel Tuner's search space of these parameters (JSON) and restrictions: the same for every run."""
    from kernel_tuner.searchspace import Searchspace

    return Searchspace(json.loads(tune_params), list(restrictions), max_threads=10**9)


def as_its_authors_run_it(optimizer: str) -> pairs.Factory:
    """A strategy that returns is not started again."""
    if optimizer == "diff_evo":
        return OnKernelTunersSpace(optimizer)
    return registry.make(optimizer, **({} if optimizer == "random_search" else {"restart": False}))


def cell(estimator: str, optimizer: str, recording: Recording, repeats: int, seed: int) -> dict[str, Any]:
    """P of one optimizer on one space."""
    job = pairs.Job(
        optimizer,
        as_its_authors_run_it(optimizer),
        recording.name,
        pairs.seeds_of(recording.name, seed, repeats),
        (estimator,),
    )
    started = time.process_time()
    result = pairs.run(job, recording)
    seconds = time.process_time() - started
    traces = result.traces or result.atm_traces
    shared = {
        "repeats": repeats, "seed": seed, "cpu_seconds": round(seconds, 2), "evaluations": sum(len(t.rows) for t in traces),
        "ended": {e: sum(t.ended == e for t in traces) for e in sorted({t.ended for t in traces})},
    }  # fmt: skip
    if estimator == "direct":
        base = baseline(recording)
        p = np.array([performance(t, recording, base) for t in traces])
        estimate = bootstrap.over_repeats([p])
        return {
            "P": estimate.mean,
            "low": estimate.low,
            "high": estimate.high,
            "se": float(p.std() / np.sqrt(repeats)),
        } | shared
    if result.atm_curve is None or result.atm_deviations is None:
        return {"P": None, "reason": result.atm_reason} | shared
    estimate = atm.interval(float(result.atm_curve.mean()), result.atm_deviations)
    return {
        "P": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "se": float(result.atm_deviations.std()),
    } | shared


def write(report: dict[str, Any], options: argparse.Namespace) -> None:
    """The cells so far, and the means of the rows that are complete."""
    report["means"] = means(report["cells"])
    report["command"] = (
        f"python benchmarks/scoring_peers.py --root HUB --repeats {options.repeats} --seed {options.seed}"
    )
    report["provenance"] = provenance.stamp()
    write_json(OUT, report)


def means(cells: dict[str, Any]) -> list[dict[str, Any]]:
    """Mean over the 12 spaces, with and without convolution W6600, 95 % interval from the spaces' standard errors."""
    rows = []
    for estimator, optimizer in dict.fromkeys(tuple(key.split(" ")[:2]) for key in cells):
        own = {key.split(" ")[2]: c for key, c in cells.items() if key.startswith(f"{estimator} {optimizer} ")}
        scored = {space: c for space, c in own.items() if c["P"] is not None}
        if len(scored) < 12:
            rows.append({"estimator": estimator, "optimizer": optimizer, "spaces": len(scored)})
            continue
        p, se = _mean(list(scored.values()))
        quiet = [c for space, c in scored.items() if space != "convolution_milo/W6600"]
        row = {"estimator": estimator, "optimizer": optimizer, "spaces": 12, "P": round(p, 3)}
        row |= {"low": round(p - 1.96 * se, 3), "high": round(p + 1.96 * se, 3)}
        row |= {
            "P_without_convolution_W6600": round(_mean(quiet)[0], 3),
            "repeats": min(c["repeats"] for c in own.values()),
        }
        if estimator == "atm" and optimizer in PUBLISHED:
            known, known_se = PUBLISHED[optimizer]
            row |= {"published": known, "z": round((p - known) / float(np.hypot(se, known_se)), 2)}
        rows.append(row)
    return rows


def _mean(cells: list[dict[str, Any]]) -> tuple[float, float]:
    p, se = (np.array([c[key] for c in cells]) for key in ("P", "se"))
    return float(p.mean()), float(np.sqrt((se**2).sum()) / len(cells))


if __name__ == "__main__":
    main()
