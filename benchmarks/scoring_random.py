"""Floor and ceiling of the score: true random search and the oracle on the twelve public spaces, under both estimators.

    python benchmarks/scoring_random.py --root HUB [--runs 1000] [--atm-runs 200]

Random search should be 0 on every space and the oracle 1. Writes benchmarks/scoring_random.json and docs/figures/estimators.*.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metabench import atm, bootstrap, catalog, figures, provenance, replay
from metabench.baseline import baseline
from metabench.files import write_json
from metabench.recording import Recording
from metabench.replay import Limits
from metabench.score import performance

OUT = Path(__file__).with_suffix(".json")
FIGURE = OUT.parents[1] / "docs" / "figures" / "estimators"
SPLIT = ("A100", "A4000", "MI250X", "A6000", "W6600", "W7800")


def random_search(func: Any, searchspace: Any) -> None:
    """Without replacement, until the budget is spent."""
    for configuration in searchspace.get_random_sample(searchspace.size):
        func(configuration)


def oracle(recording: Recording) -> Callable[[Any, Any], None]:
    """The optimum, at once."""
    best = recording.space[int(recording.losses.argmin())]
    return lambda func, searchspace: func(best)


def main() -> None:
    """Twelve spaces, then the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--atm-runs", type=int, default=200)
    options = parser.parse_args()
    names = [f"{kernel}_milo/{device}" for kernel in ("convolution", "dedispersion") for device in SPLIT]
    rows = []
    for recording in catalog.select(names, options.root):
        rows.append(measure(recording, options.runs, options.atm_runs))
        print(rows[-1], flush=True)
    command = f"python benchmarks/scoring_random.py --root HUB --runs {options.runs} --atm-runs {options.atm_runs}"
    write_json(OUT, {"command": command, "spaces": rows, "provenance": provenance.stamp()})
    draw(rows)


def measure(recording: Recording, runs: int, atm_runs: int) -> dict[str, Any]:
    """P of random search, with intervals, and of the oracle."""
    base, ax = baseline(recording), atm.axis(recording)
    limits = Limits(seconds=base.end)
    p = np.array([performance(replay(random_search, recording, limits, seed), recording, base) for seed in range(runs)])
    direct = bootstrap.over_repeats([p])
    traces = [replay(random_search, recording, seed=seed, session=ax.session()) for seed in range(atm_runs)]
    published = atm.interval(float(atm.performance(traces, ax).mean()), atm.resampled(traces, ax))
    best = performance(replay(oracle(recording), recording, limits), recording, base)
    return {
        "space": recording.name, "direct": direct.mean, "direct_low": direct.low, "direct_high": direct.high,
        "atm": published.mean, "atm_low": published.low, "atm_high": published.high, "oracle_direct": best,
        "direct_evaluations": base.evaluations, "atm_evaluations": ax.evaluations[1],
    }  # fmt: skip


def draw(rows: list[dict[str, Any]]) -> None:
    """P of random search on each space, both estimators, with 95 % intervals."""
    drawn, axes = figures.figure(6.4, 3.8)
    y = np.arange(len(rows))[::-1]
    for k, estimator in enumerate(("direct", "atm")):
        mean = np.array([r[estimator] for r in rows])
        ends = np.abs(np.array([[r[f"{estimator}_{end}"] for r in rows] for end in ("low", "high")]) - mean)
        axes.errorbar(mean, y + 0.14 - 0.28 * k, xerr=ends, fmt="os"[k], markersize=4, color=figures.style(k)["color"],
                      label=estimator, linewidth=1.4)  # fmt: skip
    axes.axvline(0, color=figures.GREY, linewidth=0.8, linestyle="--")
    axes.set_yticks(y, [r["space"].replace("_milo", "") for r in rows], fontsize=8)
    axes.set(xlabel="P of true random search, 95 % interval; 0 is meant to be random search")
    axes.legend(frameon=False, loc="lower left")
    figures.save(drawn, rows, FIGURE)


if __name__ == "__main__":
    main()
