"""Tasks that meta-training was never near: a conv net, a character transformer, a tiny ViT, by the trainer of `metaopt train`.

    python benchmarks/meta/never_near.py [--celo2 FILE] [--steps 500] [--seeds 2] --out benchmarks/meta/never_near.json

One checkpoint, default settings: small_fc at lr 1, no schedule; and at 0.3, which its model card recommends for transformers.
Beside it AdamW at eight rates (its default and the best in hindsight are reported) and, if FILE is given, published CELO2 with
warm-up and cosine at 1e-2.
"""

from __future__ import annotations

import argparse
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
DEFAULT = 1e-3


def contenders(weights: str | None, celo2: str | None) -> list[tuple[str, list[float], dict[str, Any]]]:
    """(name, rates, settings)."""
    packaged: dict[str, Any] = {"weights": weights} if weights else {}
    found: list[tuple[str, list[float], dict[str, Any]]] = [
        ("small_fc", [1.0], {"optimizer": "small_fc", "options": packaged}),
        ("small_fc lr 0.3", [0.3], {"optimizer": "small_fc", "options": packaged}),
    ]
    if celo2:
        shape = {"schedule": "cosine", "warmup": 0.1, "options": {"weights": celo2}}
        found.append(("celo2", [1e-2], {"optimizer": "celo2", **shape}))
    return [*found, ("adamw", list(RATES), {"optimizer": "adamw"})]


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
    """Per task and contender: mean final loss of its best rate in hindsight, and of AdamW's default rate."""
    out = []
    for name in dict.fromkeys(r["task"] for r in rows):
        for who in dict.fromkeys(r["optimizer"] for r in rows):
            by_rate: dict[float, list[float]] = {}
            for r in rows:
                if (r["task"], r["optimizer"]) == (name, who):
                    by_rate.setdefault(r["lr"], []).append(math.inf if r["final"] is None else r["final"])
            if not by_rate:  # not run on this task yet
                continue
            means = {lr: statistics.mean(x) for lr, x in by_rate.items()}
            chosen = (
                {f"{who} best": min(means, key=lambda lr: means[lr])} if len(means) > 1 else {who: next(iter(means))}
            )
            chosen |= {f"{who} default": DEFAULT} if who == "adamw" else {}
            for label, lr in chosen.items():
                runs = by_rate[lr]
                spread = statistics.stdev(runs) / len(runs) ** 0.5 if len(runs) > 1 else None
                out.append(
                    {
                        "task": name,
                        "optimizer": label,
                        "lr": lr,
                        "seeds": len(runs),
                        "final": means[lr],
                        "error": spread,
                    }
                )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default=None, help="small_fc's meta-weights, the packaged ones by default")
    parser.add_argument("--celo2", default=None)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    rows: list[dict[str, Any]] = kept["rows"]
    done = {(r["task"], r["optimizer"], r["lr"], r["steps"], r["seed"]) for r in rows}
    for seed in range(options.seeds):
        for name in options.tasks:
            for who, rates, settings in contenders(options.weights, options.celo2):
                for lr in rates:
                    if (name, who, lr, options.steps, seed) in done:
                        continue
                    loss = final(name, settings, lr, options.steps, seed)
                    row = {"task": name, "optimizer": who, "lr": lr, "steps": options.steps, "seed": seed}
                    rows.append({**row, "final": loss if math.isfinite(loss) else None})
                print(name, who, options.steps, seed, rows[-1]["final"], flush=True)
            lengths = sorted({r["steps"] for r in rows})
            tables = {str(n): table([r for r in rows if r["steps"] == n]) for n in lengths}
            write_json(options.out, {"command": "python benchmarks/meta/never_near.py --celo2 celo2_weights.pt",
                                     "stamp": stamp(), "tables": tables, "rows": rows})  # fmt: skip


if __name__ == "__main__":
    main()
