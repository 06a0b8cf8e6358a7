"""What the bundled recordings are like: optimum, median, failures, hardness, spread of the runs; written to recordings.json.

    python benchmarks/recordings.py

The recordings themselves were made with

    evotune.measure.record(NAME, DEVICE, out, repeats=9, passes=2, realtime=True, build_seconds=120)

for DEVICE in avx2, sse42 (dedispersion on sse42: one pass): every configuration built, checked in full and timed at least nine
times in a pass on one core; of two passes the faster counts. Two recordings of gemm and convolution half an hour apart, on a
machine with other work to do, differed by 3 to 7 % overall, beyond that by -7 to +11 % for 90 % of the configurations, and
agreed in rank by 0.96 to 0.99 (Spearman). lopt_small_fc_apply was recorded later, on another machine, for avx512, in one pass.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from metabench import files, kernel, recording
from metabench.recording import Recording
from metabench.space import Space

DEVICES = ("avx2", "sse42", "avx512")


def describe(there: Recording) -> dict[str, Any]:
    """Figures of one recording; times in ms."""
    values, best = there.values, there.optimum
    default = there.space.find(tuple(there.space.defaults[name] for name in there.space.names))
    least = [sorted(there.details.runs_of(row) or [])[:2] for row in range(len(values))] if there.details else []
    return {
        "configurations": len(values),
        "failures": there.failures,
        "optimum": best,
        "median": round(there.median, 4),
        "slowest": float(np.nanmax(values)),
        "default": None if default is None else values[default],
        "best": there.space.describe(int(np.nanargmin(values))),
        "fraction_within_5_percent": round(float(np.mean(values <= 1.05 * best)), 4),
        "fraction_within_10_percent": round(float(np.mean(values <= 1.10 * best)), 4),
        "local_optima_hamming": local_optima(there),
        "mean_cost_seconds": round(float(there.costs.mean()), 3),
        "second_fastest_run_by_fastest_p90": round(float(np.percentile([b / a for a, b in least], 90)), 4),
    }


def local_optima(there: Recording) -> int:
    """Configurations that no Hamming neighbour beats."""
    losses = there.losses
    return sum(not (losses[there.space.neighbors(row)] < losses[row]).any() for row in np.flatnonzero(losses < np.inf))


def pair(one: Recording, other: Recording) -> dict[str, Any]:
    """How much two devices agree: rank correlation, and what one's best costs on the other, times its optimum."""
    both = np.isfinite(one.values) & np.isfinite(other.values)
    return {
        "spearman": round(float(spearmanr(one.values[both], other.values[both])[0]), 3),
        f"best_of_{one.device}_on_{other.device}": round(other.values[np.nanargmin(one.values)] / other.optimum, 3),
        f"best_of_{other.device}_on_{one.device}": round(one.values[np.nanargmin(other.values)] / one.optimum, 3),
    }


def main() -> None:
    """Describe every recording, and each pair of a kernel's."""
    result: dict[str, Any] = {}
    for name in kernel.available():
        here = kernel.find(name)
        space = Space.from_t1(here.space_definition())
        paths = [here.recordings() / f"{device}.json.gz" for device in DEVICES]
        there = [recording.load(path, space=space) for path in paths if path.exists()]
        machine = ("processor", "compiler", "system")
        result |= {r.name: {**describe(r), "machine": {k: r.meta[k] for k in machine}} for r in there}
        result |= {f"{name}, {a.device} and {b.device}": pair(a, b) for a, b in combinations(there, 2)}
    print(files.write_json(Path(__file__).with_suffix(".json"), result))


if __name__ == "__main__":
    main()
