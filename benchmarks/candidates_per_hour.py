"""Candidates an hour on two cores, on the paper's six training spaces at 12 repeats: ours, and Kernel Tuner's simulation mode
with autotuning_methodology, as LLaMEA's users evaluate a candidate today. Measured in one run, in turns.

    python benchmarks/candidates_per_hour.py --root HUB

Ours is the evaluation that an evolution does: static check, toy space, all runs in the jail, score. The candidates are random
searches that differ in a constant, and the zoo's HybridVNDX (ours only). Theirs is `get_strategy_scores` of each space with
Kernel Tuner's random_sample, which by default stops after a tenth of a space. CPU seconds of this process and all its children
decide, for they do not depend on what else the machine does: an hour on two cores is 7,200 of them. Wall clock is told too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from scoring_end_to_end import cpu, pipeline

from evotune import zoo
from evotune.evaluate import Evaluator
from metabench import catalog, provenance
from metabench.files import write_json
from metabench.recording import Recording

OUT = Path(__file__).with_suffix(".json")
REPEATS, CORES = 12, 2
SPACES = [
    f"{kernel}_milo/{device}" for kernel in ("convolution", "dedispersion") for device in ("A100", "A4000", "MI250X")
]
RANDOM = """
import random
class RandomSearch:
    NUMBER = {number}
    def __call__(self, func, searchspace):
        rng = random.Random(random.random() + self.NUMBER)
        for config in rng.sample(searchspace.list, searchspace.size):
            func(config)
"""


def main() -> None:
    """Both sides in turns, space by space."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    root = Path(parser.parse_args().root).resolve()
    recordings = catalog.select(SPACES, root)
    ours: list[dict[str, float]] = []
    theirs: dict[str, dict[str, float]] = {}
    evaluate(recordings, [RANDOM.format(number=-1)])  # baselines are computed once per space, not per candidate
    for i, name in enumerate(SPACES):
        kernel, device = name.split("/")
        theirs[name] = whole(lambda k=kernel, d=device: pipeline(root, k, d, "random_sample", REPEATS))  # type: ignore[misc]
        ours.append(evaluate(recordings, [RANDOM.format(number=4 * i + j) for j in range(4)]))
    vndx = evaluate(recordings, [zoo.entry("hybrid_vndx_fixed").path.read_text()])
    random = {key: statistics.median(one[key] for one in ours) for key in ours[0]}
    their = {key: sum(one[key] for one in theirs.values()) for key in ("cpu_s", "wall_s")}
    report = {
        "command": "python benchmarks/candidates_per_hour.py --root HUB", "spaces": SPACES, "repeats": REPEATS, "cores": CORES,
        "ours, a random search": random | {"per_hour": hourly(random)},
        "ours, HybridVNDX": vndx | {"per_hour": hourly(vndx)},
        "autotuning_methodology, random_sample": their | {"per_hour": hourly(their), "spaces": theirs},
        "ratio, random search": their["cpu_s"] / random["cpu_s"], "provenance": provenance.stamp(),
    }  # fmt: skip
    write_json(OUT, report)
    print(report)


def hourly(one: dict[str, float]) -> float:
    """Candidates an hour when all cores are busy."""
    return CORES * 3600 / one["cpu_s"]


def evaluate(recordings: list[Recording], sources: list[str]) -> dict[str, float]:
    """Seconds a candidate, starting and ending the jails included; two candidates side by side."""

    def run() -> None:
        with Evaluator(recordings, REPEATS, workers=CORES) as evaluator:
            for future in [evaluator.submit(source) for source in sources]:
                failure = future.result().failure
                if failure is not None:
                    raise RuntimeError(str(failure))

    return {key: value / len(sources) for key, value in whole(run).items()}


def whole(run: Any) -> dict[str, float]:
    """CPU and wall-clock seconds."""
    used, started = cpu(), time.perf_counter()
    run()
    return {"cpu_s": cpu() - used, "wall_s": time.perf_counter() - started}


if __name__ == "__main__":
    main()
