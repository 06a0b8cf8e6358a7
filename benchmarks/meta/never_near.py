"""Tasks that meta-training was never near: a conv net, a character transformer, a tiny ViT, by the trainer of `metaopt train`.

    python benchmarks/meta/never_near.py [--celo2 FILE] [--steps 500 2000] [--seeds 5] [--only NAME ...]

One checkpoint each, default settings: packaged mulo and small_fc at lr 1, no schedule; small_fc also at 0.3,
which its card recommends for wide networks; mulo also with a rate that falls over the last fifth, and so AdamW at two rates;
AdamW also with a fall much like the one that mulo's steps have within them.
Beside them AdamW at eight rates, constant (its default and the best in hindsight are reported) and, if FILE is given, published
CELO2 with warm-up and cosine at 3e-3 and 1e-2.
From the second seed on AdamW runs at its default and at the three rates that were best at the first.
Rows that are there are not run again, so rows of weights that have changed must be deleted (--forget NAME).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from lopt import tasks
from lopt.train import Settings, Training
from metabench.files import write_json
from metabench.provenance import stamp

TASKS: dict[str, dict[str, Any]] = {
    "digits_conv": {"kind": "conv", "width": 16},
    "char_lm": {"kind": "gpt", "size": "tiny"},
    "vit_tiny": {"kind": "vit", "size": "tiny"},
}
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
FOLLOWED = 3
DEFAULTS = {"adamw": 1e-3, "adamw, late": 1e-3, "adamw, inverse_sqrt": 1e-3, "celo2, cosine": 1e-2}


def contenders(celo2: str | None) -> dict[str, tuple[list[float], dict[str, Any]]]:
    """name: (rates, settings)."""
    shape = {"schedule": "cosine", "warmup": 0.1}
    found: dict[str, tuple[list[float], dict[str, Any]]] = {
        "mulo": ([1.0], {"optimizer": "mulo"}),
        "mulo, late": ([1.0], {"optimizer": "mulo", "schedule": "late"}),
        "adamw, late": ([1e-3, 3e-3], {"optimizer": "adamw", "schedule": "late"}),
        "adamw, inverse_sqrt": ([1e-3, 3e-3], {"optimizer": "adamw", "schedule": "inverse_sqrt"}),
        "small_fc": ([1.0], {"optimizer": "small_fc"}),
        "small_fc, lr 0.3": ([0.3], {"optimizer": "small_fc"}),
    }
    if celo2:
        found["celo2, cosine"] = ([3e-3, 1e-2], {"optimizer": "celo2", **shape, "options": {"weights": celo2}})
    return {**found, "adamw": (list(RATES), {"optimizer": "adamw"})}


def rates_of(who: str, rates: list[float], task: str, steps: int, seed: int, rows: list[dict[str, Any]]) -> list[float]:
    """All at the first seed; then those that were best there, and AdamW's default."""
    if len(rates) == 1 or not seed:
        return rates
    first = [r for r in rows if (r["task"], r["optimizer"], r["steps"], r["seed"]) == (task, who, steps, 0)]
    first.sort(key=lambda r: math.inf if r["final"] is None else r["final"])
    return sorted({DEFAULTS[who], *(r["lr"] for r in first[:FOLLOWED])})


def final(name: str, settings: dict[str, Any], lr: float, steps: int, seed: int) -> float:
    """Mean loss over the last twentieth of a run; infinite if it diverged."""
    task = tasks.make_task(seed=seed, **TASKS[name])
    with tempfile.TemporaryDirectory() as folder:
        return (
            Training(task, Settings(lr=lr, steps=steps, seed=seed, log_every=steps, **settings), Path(folder))
            .run()
            .final
        )


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per task and contender: mean final loss, of its best rate in hindsight where there are several, and of AdamW's default."""
    out = []
    for name, who in dict.fromkeys((r["task"], r["optimizer"]) for r in rows):
        by_rate: dict[float, list[float]] = {}
        for r in rows:
            if (r["task"], r["optimizer"]) == (name, who):
                by_rate.setdefault(r["lr"], []).append(math.inf if r["final"] is None else r["final"])
        most = max(len(x) for x in by_rate.values())
        means = {lr: statistics.mean(x) for lr, x in by_rate.items() if len(x) == most}
        best = min(means, key=lambda lr: means[lr])
        chosen = {f"{who} best": best, f"{who} default": DEFAULTS[who]} if len(by_rate) > 1 else {who: best}
        for label, lr in chosen.items():
            runs = by_rate[lr]
            error = statistics.stdev(runs) / len(runs) ** 0.5 if len(runs) > 1 and math.isfinite(sum(runs)) else None
            mean = statistics.mean(runs)
            out.append({"task": name, "optimizer": label, "lr": lr, "seeds": len(runs),
                        "final": mean if math.isfinite(mean) else None, "error": error})  # fmt: skip
    return out


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    lengths = sorted({r["steps"] for r in rows})
    tables = {str(n): table([r for r in rows if r["steps"] == n]) for n in lengths}
    command = "python benchmarks/meta/never_near.py --celo2 celo2_weights.pt"
    write_json(path, {"command": command, "stamp": stamp(), "tables": tables, "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--celo2", default=None)
    parser.add_argument("--steps", type=int, nargs="*", default=[500, 2000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--only", nargs="*", default=None, help="these contenders alone")
    parser.add_argument("--forget", nargs="*", default=[], help="drop the rows of these contenders first")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows: list[dict[str, Any]] = [r for r in kept if r["optimizer"] not in options.forget]
    done = {(r["task"], r["optimizer"], r["lr"], r["steps"], r["seed"]) for r in rows}
    wanted = {k: v for k, v in contenders(options.celo2).items() if options.only is None or k in options.only}
    for steps, seed, name in itertools.product(options.steps, range(options.seeds), options.tasks):
        for who, (rates, settings) in wanted.items():
            for lr in rates_of(who, rates, name, steps, seed, rows):
                if (name, who, lr, steps, seed) in done:
                    continue
                loss = final(name, settings, lr, steps, seed)
                row = {"task": name, "optimizer": who, "lr": lr, "steps": steps, "seed": seed}
                rows.append({**row, "final": loss if math.isfinite(loss) else None})
                print(name, who, lr, steps, seed, loss, flush=True)
        save(options.out, rows)


if __name__ == "__main__":
    main()
