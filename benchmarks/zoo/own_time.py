"""Own time and memory of gp_general and gp_transfer: CPU milliseconds an evaluation, peak resident set, on spaces of three sizes.

    python benchmarks/zoo/own_time.py --root HUB

The landscape is invented (a cone with ripples, around a random configuration), so that spaces without measurements serve. What
the space itself takes, list and look-up table included, is stated beside the whole. Transfer gets two sources: the same landscape
with other ripples and with noise. Results go to benchmarks/zoo/own_time.json; a second call goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from evotune.zoo.gp_general import GPGeneral
from evotune.zoo.gp_transfer import GPTransfer
from metabench import provenance
from metabench.files import read_json, write_json
from metabench.searchspace import Searchspace
from metabench.space import Space

OUT = Path(__file__).with_suffix(".json")
CASES = {  # optimizer | space: evaluations
    "gp_general | gemm_clblast": 2000,
    "gp_general | gemm_milo": 400,
    "gp_general | hotspot, 349,853": 400,
    "gp_transfer | gemm_clblast": 2000,
    "gp_transfer | hotspot, 349,853": 400,
}


class End(BaseException):
    """The budget is spent."""


def space_of(name: str, root: Path) -> Space:
    """The space of a case; hotspot's with the parameter that the papers' count contains."""
    if name == "gemm_clblast":
        from metabench import catalog

        return catalog.select(["gemm_clblast/RTX_Titan"], root)[0].space
    definition = read_json(root / "kernels" / f"{name.split(',')[0].removesuffix('_milo')}_milo.json")
    space = Space.from_t1(definition)
    if not name.startswith("hotspot"):
        return space
    width, height = (f"(block_size_{a}*tile_size_{a}+temporal_tiling_factor*2)" for a in "xy")
    memory = f"{width}*{height}*(2+sh_power)*4"
    rules = [r.text for r in space.restrictions] + [f"blocks_per_sm == 0 or {memory} * blocks_per_sm <= 102400"]
    return Space.from_dict({**space.tune_params, "blocks_per_sm": [0, 1, 2, 3, 4]}, rules)


def peak() -> float:
    """Peak resident set so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(name: str, root: Path, report: Any) -> None:
    """One case, in a process of its own; the result goes into the queue `report`."""
    optimizer, _, on = name.partition(" | ")
    space = space_of(on, root)
    searchspace = Searchspace(space, 0)
    scaled = space.table / np.maximum([len(v) - 1 for v in space.values], 1)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, scaled.shape[1])
    distance = np.abs(scaled - scaled[rng.integers(len(scaled))]) @ weights / weights.sum()
    truth = np.exp(8.0 * distance) + 0.05 * np.sin(17.0 * scaled @ weights)
    sources = []
    for ripple in (11.0, 23.0) if optimizer == "gp_transfer" else ():
        other = np.exp(8.0 * distance + 0.1 * rng.standard_normal(len(space))) + 0.05 * np.sin(
            ripple * scaled @ weights
        )
        sources.append({tuple(space[i]): float(cost) for i, cost in enumerate(other)})
    space.find(space[0])  # builds the look-up table
    before, asked = peak(), []

    def func(config: Any, check_restrictions: bool = True) -> float:
        if len(asked) == CASES[name]:
            raise End
        asked.append(space.find(config))
        return float(truth[asked[-1]])

    started = time.process_time()
    with contextlib.suppress(End):
        (GPTransfer(sources, seed=0) if sources else GPGeneral(seed=0))(func, searchspace)
    spent = 1e3 * (time.process_time() - started) / len(asked)
    report.put(
        {
            "configurations": len(space),
            "evaluations": len(asked),
            "cpu_ms_per_evaluation": round(spent, 2),
            "peak_mb": round(peak()),
            "space_alone_mb": round(before),
            "better_left": int((truth < truth[asked].min()).sum()),
        }
    )


def main() -> None:
    """All cases, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, type=Path, help="folder of the benchmark hub")
    options = parser.parse_args()
    context, cases = multiprocessing.get_context("spawn"), read_json(OUT)["cases"] if OUT.is_file() else {}
    cases = {name: case for name, case in cases.items() if name in CASES}
    for name in (n for n in CASES if n not in cases):
        queue = context.Queue()
        process = context.Process(target=run, args=(name, options.root, queue))
        process.start()
        cases[name] = queue.get()
        process.join()
        print(name, cases[name], flush=True)
        command = "python benchmarks/zoo/own_time.py --root HUB"
        write_json(OUT, {"cases": cases, "command": command, "provenance": provenance.stamp()})


if __name__ == "__main__":
    main()
