"""The step kernel, tuned: which optimizer finds what in how many evaluations, and what it is worth; tuning_report.json, .md.

    python benchmarks/tuning_report.py            # by replay on the bundled recording of lopt_small_fc_apply: minutes
    python benchmarks/tuning_report.py --live     # and one tuning run on this machine, finalists in turns with the default

Each optimizer has 50 runs, seeds 0 to 49, of at most 100 evaluations. Numbers are medians with quartiles over the runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from evotune.measure import Task, tune
from evotune.measure.ab import compare
from evotune.measure.pool import Pool
from metabench import catalog, provenance, registry
from metabench.files import write_atomic, write_json
from metabench.kernel import find
from metabench.recording import Recording
from metabench.replay import Limits, replay

OUT = Path(__file__).with_suffix(".json")
KERNEL, DEVICE = "lopt_small_fc_apply", "avx512"
OPTIMIZERS = {
    "gp_general": "ours, written for this project",
    "hybrid_vndx": "Kernel Tuner's, evolved by a language model",
    "hybrid_vndx_fixed": "the same, its faults mended",
    "genetic_algorithm": "Kernel Tuner's",
    "diff_evo": "Kernel Tuner's",
    "random_search": "random",
}
REPEATS, MOST = 50, 100
EVALUATIONS, ROUNDS = 30, 31  # of the live run; of its comparison with the default
# What the step takes where nothing was tuned: the source's defaults, for vectors of 16.
DEFAULT = {"BLOCK": 64, "VEC": 16, "UNROLL": 2, "HIDDEN_TILE": 4, "FUSE_OUTPUT": 1, "LOOP_ORDER": 0}
STOPS = (20, 40, 100)  # evaluations at which the best so far is looked at
NEAR = (0.05, 0.02)  # of the optimum


def runs_of(name: str, recording: Recording) -> list[np.ndarray]:
    """The best so far after each evaluation, times the optimum, run by run; a run that ends early stays where it was."""
    curves = []
    for seed in range(REPEATS):
        trace = replay(registry.make(name)(), recording, Limits(evaluations=MOST), seed)
        best = np.minimum.accumulate(recording.losses[trace.rows]) / recording.optimum
        curves.append(np.concatenate([best, np.full(MOST - len(best), best[-1])]))
    return curves


def summary(curves: list[np.ndarray]) -> dict[str, Any]:
    """Best so far at each stop, and evaluations until near the optimum (more than `MOST` counts as such)."""
    table = np.stack(curves)
    at = {str(n): quartiles(table[:, n - 1]) for n in STOPS}
    needed = {str(near): quartiles(until(table, 1 + near)) for near in NEAR}
    reached = {str(near): int((table[:, -1] <= 1 + near).sum()) for near in NEAR}
    return {"best_by_optimum_after": at, "evaluations_until_within": needed, "runs_that_got_within": reached}


def until(table: np.ndarray, enough: float) -> np.ndarray:
    """The first evaluation at which each run is good enough; MOST + 1 if none was."""
    good = table <= enough
    return np.where(good.any(1), good.argmax(1) + 1, MOST + 1)


def quartiles(x: np.ndarray) -> list[float]:
    """Median, lower and upper quartile."""
    return [round(float(q), 4) for q in np.percentile(x, [50, 25, 75])]


def described(recording: Recording) -> dict[str, Any]:
    """The recording's own figures; times in ms."""
    row = recording.space.find(tuple(DEFAULT[name] for name in recording.space.names))
    assert row is not None
    return {
        "name": recording.name,
        "processor": recording.meta.get("processor"),
        "configurations": len(recording.space),
        "optimum_ms": recording.optimum,
        "default_ms": float(recording.values[row]),
        "median_ms": round(recording.median, 4),
        "optimum": recording.space.describe(int(np.nanargmin(recording.values))),
        "default_by_optimum": round(float(recording.values[row] / recording.optimum), 4),
        "rank_of_the_default": int((recording.values < recording.values[row]).sum()) + 1,
    }


LIVE: dict[str, Any] = {"realtime": True, "build_seconds": 240}


def live() -> dict[str, Any]:
    """One tuning run on this machine, with the flags that the step is built with."""
    found = tune(KERNEL, "gp_general", evaluations=EVALUATIONS, **LIVE)
    return {name: getattr(found, name) for name in ("device", "tuner", "evaluations", "configuration", "failures")}


def in_turns(tuned: dict[str, Any], recorded: dict[str, Any], device: str | None) -> dict[str, Any]:
    """What tuning found, and the recording's best, in turns with the default: medians in ms; the default's time by theirs."""
    with Pool(Task.of(find(KERNEL), device, **LIVE)) as pool:
        turns = compare(pool, [DEFAULT, tuned, recorded], ROUNDS)
    names = ("default", "tuned", "recorded_best")
    return {
        "milliseconds": {name: round(turns.milliseconds(i), 3) for i, name in enumerate(names)},
        "default_by": {name: [round(x, 4) for x in turns.speedup(i)] for i, name in enumerate(names) if i},
    }


def needed_cell(cell: dict[str, Any], near: float) -> str:
    """How many evaluations, "31 (20 to 44), 50 of 50"."""
    told = [f"{x:.0f}" if x <= MOST else f"> {MOST}" for x in cell["evaluations_until_within"][str(near)]]
    return "{} ({} to {}), ".format(*told) + f"{cell['runs_that_got_within'][str(near)]} of {REPEATS}"


def page(report: dict[str, Any]) -> str:
    """tuning_report.md."""
    there = report["recording"]
    best_columns = " | ".join(f"best after {n}, by the optimum" for n in STOPS)
    needed_columns = " | ".join(f"evaluations until within {n:.0%} (runs)" for n in NEAR)
    lines = [
        "# The step kernel, tuned",
        "",
        f"`{there['name']}`, {there['processor']}, {there['configurations']} configurations, each checked in full and timed:",
        f"the best takes {there['optimum_ms']:.2f} ms, the median {there['median_ms']:.2f}, the default "
        f"{there['default_ms']:.2f} ({there['default_by_optimum']:.2f} times the best, rank {there['rank_of_the_default']}).",
        "",
        f"By replay, {REPEATS} runs each of at most {MOST} evaluations; medians, quartiles in brackets.",
        "",
        f"| optimizer | {best_columns} | {needed_columns} |",
        "|---|" + "---|" * (len(STOPS) + len(NEAR)),
    ]
    for name, cell in report["optimizers"].items():
        best = ["{:.3f} ({:.3f} to {:.3f})".format(*cell["best_by_optimum_after"][str(n)]) for n in STOPS]
        needed = [needed_cell(cell, near) for near in NEAR]
        lines.append(f"| {name}: {OPTIMIZERS[name]} | " + " | ".join([*best, *needed]) + " |")
    return "\n".join([*lines, *(live_lines(report) if "live" in report else ())]) + "\n"


def live_lines(report: dict[str, Any]) -> list[str]:
    """The live run, and what its result is worth."""
    run, there = report["live"], report["recording"]
    found = ", ".join(f"{k}={v}" for k, v in run["configuration"].items())
    lines = [
        "",
        f"Live, on {run['device']}: {run['tuner']}, {run['evaluations']} evaluations, found {found}.",
        f"In turns, {ROUNDS} rounds, arguments restored before every run; the default's time by another's (quartiles):",
        "",
        "| flags | by what tuning found | by the recording's best |",
        "|---|---|---|",
    ]
    for flags, cell in report["in_turns"].items():
        ratios = ["{:.3f} ({:.3f} to {:.3f})".format(*cell["default_by"][name]) for name in ("tuned", "recorded_best")]
        lines.append(f"| {flags} | " + " | ".join(ratios) + " |")
    return [
        *lines,
        "",
        f"The recording says {there['default_by_optimum']:.3f} of the last: it timed each configuration in another minute.",
    ]


def main() -> None:
    """Fill in the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    (recording,) = catalog.select(f"{KERNEL}/{DEVICE}")
    report |= {
        "recording": described(recording),
        "optimizers": {name: summary(runs_of(name, recording)) for name in OPTIMIZERS},
        "versions": provenance.versions(),
    }
    if options.live:
        report["live"] = live()
        both = report["live"]["configuration"], report["recording"]["optimum"]
        report["in_turns"] = {"the step's": in_turns(*both, None), "the recording's": in_turns(*both, DEVICE)}
    write_json(OUT, report)
    write_atomic(OUT.with_suffix(".md"), page(report))
    print(page(report))


if __name__ == "__main__":
    main()
