"""Packaged meta-weights on the frozen held-out tasks, beside AdamW at eight learning rates, from the same starts and batches.

    python benchmarks/meta/held_out.py [WEIGHTS ...] [--cosine] [--falling]
    python benchmarks/meta/held_out.py --steps 3000 --every 6 --cosine --long --out benchmarks/meta/held_out_3000.json

WEIGHTS is anything that `lopt.models.pretrained` reads; those that say a `hidden_lr_mult` run as MuLO, the others as small_fc;
"start" is what meta-training begins with, the control. With --cosine both sides are also run with warm-up and a cosine over all
steps, as one who knows the horizon would; with --falling AdamW is also run with a rate that falls much as packaged mulo's
steps do, for as many as there may be. AdamW's curves are kept in the output file and not computed again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch

from lopt import SmallFCWeights
from lopt.metatrain.evaluate import RATES, Schedule, adamw, compared, constant, cosine, curves, learned, measures
from lopt.metatrain.frozen import frozen
from lopt.metatrain.meta_weights import flatten, like_adam
from lopt.metatrain.tasks import Task
from lopt.models.small_fc import UNSCALED, StepScales
from lopt.train.schedules import inverse_sqrt
from metabench.files import write_json
from metabench.provenance import stamp

HORIZONS = (200, 1000, 3000)
LONG, LONG_TASKS = 10_000, (0, 13)  # an MLP and a conv net


def numbered(split: str, every: int) -> list[tuple[int, Task]]:
    """Every so-manieth task of a split with its number."""
    return list(enumerate(frozen(split)))[::every]


def named(name: str) -> tuple[torch.Tensor, StepScales]:
    """Flat meta-weights, and the scales of their steps."""
    if name == "start":
        return like_adam(0), UNSCALED
    weights = SmallFCWeights.from_pretrained(name)
    return flatten(weights), weights.scales


def baseline(options: argparse.Namespace, schedule: Schedule) -> list[list[dict[str, float]]]:
    """Measures of AdamW at every rate, task by task."""
    out = []
    for number, task in numbered(options.split, options.every):
        make = adamw(schedule=schedule, steps=options.steps)
        found = curves(task, number, options.seeds, len(RATES), options.steps, make)
        out.append([measures(c, horizons(options, schedule)) for c in found])
        print(f"adamw {schedule.__name__} {number} {task.family}", flush=True)
    return out


def ours(name: str, options: argparse.Namespace, schedule: Schedule) -> list[dict[str, float]]:
    """Measures of meta-weights, task by task."""
    theta, scales = named(name)
    out = []
    for number, task in numbered(options.split, options.every):
        make = learned(theta, schedule=schedule, steps=options.steps, scales=scales)
        curve = curves(task, number, options.seeds, 1, options.steps, make)[0]
        out.append(measures(curve, horizons(options, schedule)))
    print(f"{name} {schedule.__name__}", flush=True)
    return out


def horizons(options: argparse.Namespace, schedule: Schedule) -> list[int]:
    """Where a curve is measured; one that is on its way down a cosine has only its end."""
    return [options.steps] if schedule is cosine else [h for h in HORIZONS if h <= options.steps]


def long_run(name: str, split: str) -> list[dict[str, Any]]:
    """10,000 steps without a schedule, and with warm-up and cosine: does any diverge?"""
    theta, scales = named(name)
    rows = []
    for number, schedule in itertools.product(LONG_TASKS, (constant, cosine)):
        task, make = frozen(split)[number], learned(theta, schedule=schedule, steps=LONG, scales=scales)
        curve = curves(task, number, 1, 1, LONG, make)[0]
        best = curve[0].unfold(0, 500, 500).mean(1).min().item()  # of windows of 500 steps
        final = curve[0, -500:].mean().item()
        rows.append({"task": number, "family": task.family, "schedule": schedule.__name__, "first": curve[0, 0].item(),
                     "best": best, "final": final, "diverged": final > 1.5 * best})  # fmt: skip
    return rows


def ratios(found: dict[str, list[dict[str, float]]], base: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each contender to AdamW under each schedule, in the measures that both have."""
    out: dict[str, dict[str, Any]] = {}
    for name, own in found.items():
        out[name] = {}
        for schedule, rates in base.items():
            keys = [k for k in own[0] if k in rates[0][0]]
            mine = [{k: m[k] for k in keys} for m in own]
            theirs = [[{k: m[k] for k in keys} for m in row] for row in rates]
            out[name][f"adamw {schedule}"] = compared(mine, theirs)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", nargs="*", default=["small_fc", "mulo", "start"])
    parser.add_argument("--split", default="held_out")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1, help="every so-manieth task")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="10,000 steps on two tasks as well")
    parser.add_argument("--cosine", action="store_true", help="both sides with a cosine over all steps as well")
    parser.add_argument("--falling", action="store_true", help="AdamW with an inverse square root schedule as well")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    same = {"split": options.split, "every": options.every, "steps": options.steps, "seeds": options.seeds}
    base: dict[str, Any] = kept.get("baseline", {}) if kept.get("settings") == same else {}
    schedules = [constant, cosine] if options.cosine else [constant]
    for schedule in (*schedules, *([inverse_sqrt] if options.falling else ())):
        if schedule.__name__ not in base:
            base[schedule.__name__] = baseline(options, schedule)
            write_json(options.out, {"settings": same, "baseline": base})
    names = [(name, schedule) for name in options.weights for schedule in schedules]
    found = {f"{name}, cosine" if s is cosine else name: ours(name, options, s) for name, s in names}
    table = ratios(found, base)
    extra = {"long": {name: long_run(name, options.split) for name in options.weights}} if options.long else {}
    write_json(options.out, {
        "command": f"python benchmarks/meta/held_out.py {' '.join(sys.argv[1:])}".strip(), "stamp": stamp(), "settings": same,
        "rates": RATES, "ratios": table, **extra, "measures": found, "baseline": base})  # fmt: skip
    for name, against in table.items():
        for what, row in against.items():
            print(name, "to", what, row)


if __name__ == "__main__":
    main()
