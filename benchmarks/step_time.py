"""Step time and memory of the learned optimizers on a 10.1 M-parameter GPT, beside torch.optim: one thread, CPU time.

One interleaved run: every round takes one step of every contender. Ratios are to AdamW (foreach) of the same round.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py              # writes benchmarks/step_time.json, prints the table
    chrt -f 10 python benchmarks/step_time.py threads             # measures its "threads" anew, in seconds, undisturbed

Two threads on two cores have no core left for neighbours, and wait for whichever of them is disturbed: hence real-time priority.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lopt.bench import bench, fma_share, threads_speedup
from metabench.files import write_json
from metabench.provenance import stamp

CONTENDERS = [
    "adamw_fused",
    "adafactor",
    "small_fc",
    "mulo",
    "elo",
    "velo",
    "celo2_base",
    "celo2",
    "newton_schulz_alone",
    "small_fc_reference",
    "velo_reference",
    "celo2_reference",
]
# What a step may cost at most, in AdamW (foreach) steps; CELO2's bound has its matrix products on top.
BOUNDS = {"small_fc": 15.0, "mulo": 15.0, "elo": 15.0, "velo": 6.0, "celo2_base": 33.0}
LARGEST_SCRATCH_MB = 64.0
LEAST_SHARE = 0.6  # of the core's multiply-add peak


def main(rounds: int = 7) -> None:
    share = fma_share(rounds)
    rows = bench(CONTENDERS, "gpt10m", threads=1, rounds=rounds)
    by_name = {row["optimizer"]: row for row in rows}
    bounds = {**BOUNDS, "celo2": BOUNDS["celo2_base"] + by_name["newton_schulz_alone"]["ratio"]}
    for name, bound in bounds.items():
        by_name[name] |= {"bound": round(bound, 1), "within": by_name[name]["ratio"] <= bound}
    speedups = threads(rounds)
    result = {"command": "OMP_NUM_THREADS=1 python benchmarks/step_time.py", **stamp(),
              "note": "meta-weights are random numbers, which cost what trained ones cost", "fma": share,
              "threads": speedups, "rows": rows}  # fmt: skip
    path = write_json(Path(__file__).with_suffix(".json"), result)
    for row in [share, *speedups, *rows]:
        sys.stdout.write(json.dumps(row) + "\n")
    late = [name for name in bounds if not by_name[name]["within"]]
    large = [name for name in BOUNDS if by_name[name]["scratch_mb"] > LARGEST_SCRATCH_MB]
    sys.stdout.write(f"over their bound: {late or 'none'}; over {LARGEST_SCRATCH_MB:.0f} MB of scratch: {large or 'none'}; "
                     f"share of the peak {share['share']:.2f} (at least {LEAST_SHARE}); {path}\n")  # fmt: skip


def threads(rounds: int = 7) -> list[dict[str, Any]]:
    return [threads_speedup(name, rounds=rounds) for name in ("small_fc", "velo")]


def again() -> None:
    """The committed run with its "threads" measured now."""
    path = Path(__file__).with_suffix(".json")
    result = {
        **json.loads(path.read_text()),
        "threads": threads(),
        "threads_command": "chrt -f 10 python benchmarks/step_time.py threads",
    }
    write_json(path, result)
    sys.stdout.write(f"{json.dumps(result['threads'])}\n")


if __name__ == "__main__":
    again() if sys.argv[1:] == ["threads"] else main()
