"""Write the measured scores into the zoo's files: `SCORES` of each, from scores.json.

python benchmarks/zoo/enter.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from evotune import zoo
from metabench.files import write_atomic

SPLITS = ("train", "test", "all 12", "all 12 without conv. W6600", "clblast")
HEAD = "SCORES = {  # P under `direct`, its 95 % interval, runs a space: benchmarks/zoo/measure.py"


def main() -> None:
    """One line for each split that was measured."""
    summary = json.loads(Path(__file__).with_name("scores.json").read_text())["summary"]
    for name in zoo.names():
        path = zoo.entry(name).path
        lines = [
            f'    "{split}": ({row["mean"]:.3f}, {row["low"]:.3f}, {row["high"]:.3f}, {min(row["repeats"])}),'
            for split in SPLITS
            if (row := summary.get(name, {}).get(split))
        ]
        if lines:
            text = "\n".join([HEAD, *lines, "}"])
            pattern = re.compile(r"^SCORES[^=]*= \{(\}|.*?^\})", re.DOTALL | re.MULTILINE)
            write_atomic(path, pattern.sub(lambda _, text=text: text, path.read_text(), count=1))


if __name__ == "__main__":
    main()
