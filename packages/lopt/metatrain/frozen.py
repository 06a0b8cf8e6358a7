"""Tasks that meta-training never draws, fixed in a file before the first run.

`held_out` is what results are reported on; `validation` is what snapshots and meta-seeds are chosen by. Both were drawn once
by `python -m lopt.metatrain.frozen`, from the families' odds of that day, in fixed numbers of each family; their data and
starts come from seeds that no lane uses. `wide` joins the validation: four networks wider than any that is trained on and one
with longer texts, written down by hand after a snapshot had been chosen that was better on all small tasks and lost on a wide
one. A test holds the file to its checksum.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from .tasks import FAMILIES, Task, task_from_json
from .tasks.conv import ConvTask
from .tasks.mlp import MLPTask
from .tasks.transformer import TransformerTask

FILE = Path(__file__).with_name("frozen_tasks.json")
COUNTS = {
    "held_out": {"mlp": 12, "conv": 6, "transformer": 6},
    "validation": {"mlp": 6, "conv": 3, "transformer": 3},
}

WIDE: list[Task] = [
    MLPTask(batch=32, inputs=24, width=128, depth=2, outputs=10, activation="gelu", source="digits"),
    ConvTask(batch=16, width=24, classes=8, activation="relu", source="templates", noise=1.0),
    TransformerTask(
        batch=8, width=64, heads=4, expand=4, vocab=24, context=24, source="words", rows=1000, init=0.1, embed=0.07, tied=True),
    TransformerTask(batch=8, width=64, heads=2, expand=2, vocab=20, context=16, source="markov", rows=1000),
    TransformerTask(
        batch=16, width=48, depth=2, heads=4, expand=4, vocab=32, context=32, source="markov", rows=1000, init=0.14, embed=0.07,
        tied=True),
]  # fmt: skip


def frozen(split: str) -> list[Task]:
    """The tasks of "held_out", "validation" or "wide"."""
    there = json.loads(FILE.read_text())
    if split not in there:
        raise ValueError(f"unknown split {split!r} of frozen tasks; allowed: {', '.join(there)}")
    return [task_from_json(entry) for entry in there[split]]


def drawn() -> dict[str, list[dict[str, object]]]:
    """What the file holds."""
    out = {}
    for split, counts in COUNTS.items():
        rng = random.Random(f"frozen {split}")
        out[split] = [FAMILIES[name].draw(rng).as_json() for name, count in counts.items() for _ in range(count)]
    return {**out, "wide": [task.as_json() for task in WIDE]}


if __name__ == "__main__":
    lines = [f'"{split}": [\n' + ",\n".join(json.dumps(t) for t in tasks) + "\n]" for split, tasks in drawn().items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
