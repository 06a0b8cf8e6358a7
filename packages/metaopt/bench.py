"""metaopt bench: step time and memory of learned optimizers beside torch.optim, in one interleaved run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from lopt import bench
from metabench import results
from metabench.errors import UserError


def run(config: DictConfig, out: Path) -> str:
    """Measure, print the table, write steps.csv/.parquet."""
    named = config.learned_optimizer
    names = list(named) if isinstance(named, ListConfig) else [str(named)]
    try:
        rows = bench.bench([*config.baselines, *names], config.model, config.threads, config.rounds, config.memory)
    except ValueError as error:
        raise UserError(str(error)) from error
    print(table(rows))
    results.write_table(rows, out / "steps")
    return ", ".join(f"{row['optimizer']} {row['ratio']:g}" for row in rows[1:]) + " times AdamW's step"


def table(rows: list[dict[str, Any]]) -> str:
    """One row per optimizer: CPU time of a step, its ratio to AdamW's of the same round, memory."""
    first = rows[0]
    lines = [
        [
            r["optimizer"],
            f"{r['cpu_ms']:.1f}",
            f"{r['ratio']:.2f}",
            r.get("state_mb", "-"),
            r.get("peak_growth_mb", "-"),
        ]
        for r in rows
    ]
    header = ["step", "CPU ms", f"ratio to {first['optimizer']}", "state MB", "peak growth MB"]
    note = f"{first['model']}, {first['threads']} thread(s), medians of {first['rounds']} rounds in turns"
    return f"{results.text_table(header, lines)}\n{note}"
