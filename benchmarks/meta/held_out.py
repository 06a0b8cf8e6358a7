"""Packaged small_fc on the frozen held-out tasks, beside AdamW at eight learning rates, from the same starts on the same batches.

    python benchmarks/meta/held_out.py [WEIGHTS ...] --cosine
    python benchmarks/meta/held_out.py [WEIGHTS ...] --steps 3000 --every 6 --long --out benchmarks/meta/held_out_3000.json

WEIGHTS is anything that `lopt.models.pretrained` reads; "start" is what meta-training begins with, the control. AdamW's curves
are kept in the output file and not computed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from lopt import SmallFCWeights
from lopt.metatrain.evaluate import RATES, adamw, compared, cosine, curves, learned, measures
from lopt.metatrain.frozen import frozen
from lopt.metatrain.meta_weights import flatten, like_adam
from lopt.metatrain.tasks import Task
from metabench.files import write_json
from metabench.provenance import stamp

HORIZONS = (200, 1000, 3000)
LONG, LONG_TASKS = 10_000, (0, 13)  # an MLP and a conv net: with warm-up and cosine


def numbered(split: str, every: int) -> list[tuple[int, Task]]:
    """Every so-manieth task of a split with its number."""
    return list(enumerate(frozen(split)))[::every]


def theta_of(name: str) -> torch.Tensor:
    return like_adam(0) if name == "start" else flatten(SmallFCWeights.from_pretrained(name))


def baseline(split: str, every: int, steps: int, seeds: int, cosine_too: bool) -> dict[str, Any]:
    """Measures of AdamW at every rate, constant, and with a cosine over 1,000 steps as one who knows the horizon would."""
    horizons = [h for h in HORIZONS if h <= steps]
    out: dict[str, Any] = {"adamw": []}
    for number, task in numbered(split, every):
        found = curves(task, number, seeds, len(RATES), steps, adamw())
        out["adamw"].append([measures(c, horizons) for c in found])
        print(f"adamw {number} {task.family}", flush=True)
    if cosine_too:
        out["adamw_cosine_1000"] = []
        for number, task in numbered(split, every):
            found = curves(task, number, seeds, len(RATES), 1000, adamw(schedule=cosine, steps=1000))
            out["adamw_cosine_1000"].append([measures(c, [1000]) for c in found])
    return out


def ours(theta: torch.Tensor, split: str, every: int, steps: int, seeds: int) -> list[list[dict[str, float]]]:
    """Measures of each of the meta-weights (k, D), task by task."""
    horizons = [h for h in HORIZONS if h <= steps]
    out: list[list[dict[str, float]]] = [[] for _ in theta]
    for number, task in numbered(split, every):
        for own, curve in zip(out, curves(task, number, seeds, len(theta), steps, learned(theta)), strict=True):
            own.append(measures(curve, horizons))
        print(f"learned {number} {task.family}", flush=True)
    return out


def long_run(theta: torch.Tensor, split: str) -> list[dict[str, Any]]:
    """10,000 steps with warm-up and cosine: does any diverge?"""
    rows = []
    for number in LONG_TASKS:
        task = frozen(split)[number]
        curve = curves(task, number, 1, 1, LONG, learned(theta, schedule=cosine, steps=LONG))[0]
        best = curve[0].unfold(0, 500, 500).mean(1).min().item()  # of windows of 500 steps
        final = curve[0, -500:].mean().item()
        rows.append({"task": number, "family": task.family, "first": curve[0, 0].item(), "best": best, "final": final,
                     "diverged": final > 1.5 * best})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", nargs="*", default=["small_fc", "start"])
    parser.add_argument("--split", default="held_out")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1, help="every so-manieth task")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="10,000 steps of the first weights on two tasks as well")
    parser.add_argument("--cosine", action="store_true", help="AdamW with cosine over 1,000 steps as well")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    same = {"split": options.split, "every": options.every, "steps": options.steps, "seeds": options.seeds}
    base = kept.get("baseline") if kept.get("settings") == same else None
    if base is None:
        base = baseline(options.split, options.every, options.steps, options.seeds, options.cosine)
        write_json(options.out, {"settings": same, "baseline": base})
    theta = torch.stack([theta_of(name) for name in options.weights])
    found = ours(theta, options.split, options.every, options.steps, options.seeds)
    ratios = {name: compared(own, base["adamw"]) for name, own in zip(options.weights, found, strict=True)}
    extra = {"long": long_run(theta[0], options.split)} if options.long else {}
    if "adamw_cosine_1000" in base:
        finals = [[{"final_1000": m["final_1000"]} for m in own] for own in found]
        extra["against_adamw_cosine_1000"] = {
            name: compared(own, [[{"final_1000": m["final_1000"]} for m in row] for row in base["adamw_cosine_1000"]])
            for name, own in zip(options.weights, finals, strict=True)}  # fmt: skip
    write_json(options.out, {
        "command": "python benchmarks/meta/held_out.py", "stamp": stamp(), "settings": same, "rates": RATES,
        "ratios": ratios, **extra, "measures": dict(zip(options.weights, found, strict=True)), "baseline": base})  # fmt: skip
    for name, against in ratios.items():
        for what, table in against.items():
            print(name, what, table)


if __name__ == "__main__":
    main()
