"""The bundled recordings: how many evaluations until within 2 % of the best, each optimizer, median of the runs.

    python benchmarks/zoo/bundled.py [--repeats 50] [--optimizers a,b]

A run ends when it has measured such a configuration, or after the whole space. Nothing of these kernels was looked at when the
zoo's designed optimizers were chosen. Results go to benchmarks/zoo/bundled.json; a second call goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metabench import catalog, provenance, registry
from metabench.files import write_json
from metabench.recording import Recording
from metabench.replay import Limits, replay

OUT = Path(__file__).with_suffix(".json")
OPTIMIZERS = (
    "gp_general", "genetic_algorithm", "diff_evo", "pso", "simulated_annealing", "adaptive_tabu_greywolf", "hybrid_vndx", "mls",
    "greedy_mls", "greedy_ils", "ordered_greedy_mls", "firefly_algorithm", "random_search",
)  # fmt: skip
NEAR = 0.02


def evaluations(make: Callable[[], Any], recording: Recording, seed: int) -> int:
    """Evaluations until one is within `NEAR` of the best; the size of the space if none was."""
    best = float(recording.losses.min())
    trace = replay(make(), recording, Limits(loss=best + NEAR * abs(best)), seed)
    return len(trace.rows) if trace.ended == "found" else len(recording.space)


def main() -> None:
    """Fill in what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    options = parser.parse_args()
    report = json.loads(OUT.read_text()) if OUT.is_file() else {"cells": {}}
    for recording in catalog.select("all"):
        for name in options.optimizers.split(","):
            key = f"{name} | {recording.name}"
            if len(report["cells"].get(key, {}).get("evaluations", ())) >= options.repeats:
                continue
            runs = [evaluations(registry.make(name), recording, seed) for seed in range(options.repeats)]
            low, middle, high = np.percentile(runs, [25, 50, 75])
            report["cells"][key] = {
                "median": middle,
                "quartiles": [low, high],
                "size": len(recording.space),
                "evaluations": runs,
            }
            report |= {"command": "python benchmarks/zoo/bundled.py", "provenance": provenance.stamp()}
            write_json(OUT, report)
            print(f"{key}: {middle:.0f} of {len(recording.space)}", flush=True)


if __name__ == "__main__":
    main()
