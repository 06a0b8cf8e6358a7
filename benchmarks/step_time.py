"""Step time and memory of the learned optimizers on a 10.1 M-parameter GPT, beside torch.optim: one thread, CPU time.

One interleaved run: every round takes one step of every contender. Ratios are to AdamW (foreach) of the same round.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py      # writes benchmarks/step_time.json, prints the table
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lopt.bench import bench
from metabench.files import write_json
from metabench.provenance import stamp

CONTENDERS = [
    "adamw_fused",
    "adafactor",
    "small_fc",
    "small_fc_cpu",
    "velo",
    "celo2_base",
    "celo2",
    "newton_schulz_alone",
]
# What a step may cost at most, in AdamW (foreach) steps; CELO2's bound has its matrix products on top.
BOUNDS = {"small_fc": 40.0, "velo": 22.0, "celo2_base": 33.0}
LARGEST_GROWTH_MB = 250.0


def main(rounds: int = 7) -> None:
    rows = bench(CONTENDERS, "gpt10m", threads=1, rounds=rounds)
    by_name = {row["optimizer"]: row for row in rows}
    bounds = {**BOUNDS, "celo2": BOUNDS["celo2_base"] + by_name["newton_schulz_alone"]["ratio"]}
    for name, bound in bounds.items():
        by_name[name] |= {"bound": round(bound, 1), "within": by_name[name]["ratio"] <= bound}
    result = {"command": "OMP_NUM_THREADS=1 python benchmarks/step_time.py", **stamp(),
              "note": "meta-weights are random numbers, which cost what trained ones cost", "rows": rows}  # fmt: skip
    path = write_json(Path(__file__).with_suffix(".json"), result)
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")
    late = [name for name in bounds if not by_name[name]["within"]]
    large = [row["optimizer"] for row in rows if row["peak_growth_mb"] > LARGEST_GROWTH_MB]
    sys.stdout.write(
        f"over their bound: {late or 'none'}; over {LARGEST_GROWTH_MB:.0f} MB: {large or 'none'}; {path}\n"
    )


if __name__ == "__main__":
    main()
