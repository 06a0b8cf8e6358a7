"""How fast the scoring core is, beside Kernel Tuner 1.5 and autotuning_methodology 1.1, in one interleaved run.

    python benchmarks/scoring_speed.py --root HUB [--rounds 5]

Writes benchmarks/scoring_speed.json. Every comparison alternates the two sides and reports medians, and the median
of the ratios over the rounds. The hub holds cachefiles/ and kernels/.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metabench import Searchspace, Space, catalog, load, provenance
from metabench.files import write_json
from metabench.replay import Limits, Session

OUT = Path(__file__).with_suffix(".json")
DEFINITIONS = ("convolution_milo", "dedispersion_milo", "gemm_milo", "hotspot_milo", "hotspot_milo+blocks_per_sm")


def main() -> None:
    """Every measurement, one after the other."""
    measures = {
        "construction": construction, "memory": memory, "neighbours": neighbours, "loading": loading, "replay": replaying,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--memory-of", help=argparse.SUPPRESS
    )  # a child process that builds one space and says its peak
    parser.add_argument("--only", choices=measures, help="measure one part anew, and keep the others")
    options = parser.parse_args()
    root = Path(options.root)
    if options.memory_of:
        print(json.dumps(peak(definition(root, options.memory_of))))
        return
    report: dict[str, Any] = json.loads(OUT.read_text()) if options.only else {"provenance": {}}
    report["command"] = f"python benchmarks/scoring_speed.py --root HUB --rounds {options.rounds}"
    for name in [options.only] if options.only else measures:
        report[name] = measures[name](root, options.rounds)
        print(name, json.dumps(report[name], indent=1), flush=True)
        report["provenance"][name] = provenance.stamp()
        write_json(OUT, report)


def interleaved(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, Any]:
    """Median seconds of each side, and the median over rounds of the last side's time over the first's."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            taken[name].append(side())
    first, last = (np.array(taken[name]) for name in (next(iter(sides)), list(sides)[-1]))
    medians = {f"{name}_s": float(np.median(v)) for name, v in taken.items()}
    return medians | {"ratio": float(np.median(last / first))}


def timed(action: Callable[[], Any]) -> float:
    """CPU seconds of a call: other work on the machine does not count."""
    started = time.process_time()
    action()
    return time.process_time() - started


def definition(root: Path, name: str) -> dict[str, Any]:
    """The T1 definition; "+blocks_per_sm" is the papers' hotspot of 22.2 million points."""
    kernel, _, more = name.partition("+")
    content = json.loads((root / "kernels" / f"{kernel}.json").read_text())
    if more:
        section = content["ConfigurationSpace"]
        shared = section["Conditions"][-1]["Expression"].split(" <= ")[0]
        section["TuningParameters"].append({"Name": "blocks_per_sm", "Values": "[0, 1, 2, 3, 4]"})
        section["Conditions"].append({"Expression": f"blocks_per_sm == 0 or {shared} * blocks_per_sm <= 102400"})
    return content


def construction(root: Path, rounds: int) -> dict[str, Any]:
    """From parameters and restrictions to all valid configurations, as tuples, both sides."""
    from kernel_tuner.searchspace import Searchspace as Theirs

    found = {}
    for name in DEFINITIONS:
        content = definition(root, name)
        space = Space.from_t1(content)
        texts = [r.text for r in space.restrictions]
        sides = {
            "ours": lambda c=content: timed(lambda: Space.from_t1(c).configurations),
            "kernel_tuner": lambda s=space, t=texts: timed(lambda: Theirs(s.tune_params, list(t), 10**9)),
        }
        only_table = float(np.median([timed(lambda c=content: Space.from_t1(c)) for _ in range(rounds)]))
        found[name] = interleaved(sides, rounds) | {"valid": len(space), "ours_without_tuples_s": only_table}
    return found


def peak(content: dict[str, Any]) -> dict[str, float]:
    """Peak memory of this process, MB, before and after it builds a space and asks it for neighbours."""
    before = _peak_megabytes()
    space = Space.from_t1(content)
    table = _peak_megabytes()
    for row in range(0, len(space), 5_000):
        space.neighbors(row)
    space.find(space[0])
    return {"before_MB": before, "table_MB": table, "with_neighbours_and_lookup_MB": _peak_megabytes()}


def _peak_megabytes() -> float:
    """VmHWM: getrusage would also tell of the process that this one was started from."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


def memory(root: Path, rounds: int) -> dict[str, Any]:
    """The largest space, in a process of its own."""
    command = [sys.executable, __file__, "--root", str(root), "--memory-of", DEFINITIONS[-1]]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def neighbours(root: Path, rounds: int) -> dict[str, Any]:
    """One look-up of a configuration's neighbours, microseconds, first visits, both sides on the same random configurations."""
    from kernel_tuner.searchspace import Searchspace as Theirs

    counts = {"Hamming": (400, 15), "strictly-adjacent": (60, 10), "adjacent": (60, 10)}
    found: dict[str, Any] = {}
    for name in DEFINITIONS:
        space = Space.from_t1(definition(root, name))
        theirs = Theirs(space.tune_params, [r.text for r in space.restrictions], 10**9)
        found[name] = {k: _neighbours(space, theirs, k, *count, rounds) for k, count in counts.items()}
    return found


def _neighbours(space: Space, theirs: Any, kind: str, many: int, few: int, rounds: int) -> dict[str, float]:
    ours, rng = Searchspace(space), np.random.default_rng(0)
    theirs.get_neighbors_indices_no_cache(ours.list[0], neighbor_method=kind)  # its own tables, built once
    ours.get_neighbors_indices(ours.list[0], kind)

    def ask(look_up: Callable[[Any], Any], count: int) -> float:
        space.neighborhood._cache.clear()
        picked = [ours.list[i] for i in rng.integers(len(space), size=count)]
        return timed(lambda: [look_up(c) for c in picked]) / count

    sides = {
        "ours": lambda: ask(lambda c: ours.get_neighbors_indices(c, kind), many),
        "kernel_tuner": lambda: ask(lambda c: theirs.get_neighbors_indices_no_cache(c, neighbor_method=kind), few),
    }
    result = interleaved(sides, rounds)
    return {
        "ours_us": 1e6 * result["ours_s"],
        "kernel_tuner_us": 1e6 * result["kernel_tuner_s"],
        "ratio": result["ratio"],
    }


def loading(root: Path, rounds: int) -> dict[str, Any]:
    """A recording's second reading, and what Kernel Tuner and autotuning_methodology take for theirs."""
    from kernel_tuner.util import read_cache

    found = {}
    for name in ("convolution_milo/A100", "dedispersion_milo/W7800", "gemm_clblast/RTX_Titan"):
        path = root / "cachefiles" / f"{name}.json.gz"
        catalog.select(name, root)
        with tempfile.TemporaryDirectory() as folder:
            import gzip

            plain = Path(folder) / "cache.json"
            plain.write_bytes(gzip.decompress(path.read_bytes()))
            sides = {
                "ours_again": lambda n=name: timed(lambda: catalog.select(n, root)),
                "kernel_tuner": lambda p=plain: timed(lambda: read_cache(str(p), open_cache=False)),
            }
            found[name] = interleaved(sides, rounds)
        with tempfile.TemporaryDirectory() as folder, _cache_folder(folder):
            found[name]["ours_first_s"] = timed(lambda p=path: load(p))
    return found


@contextlib.contextmanager
def _cache_folder(folder: str) -> Any:
    import os

    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def replaying(root: Path, rounds: int) -> dict[str, Any]:
    """One evaluation: ours through `Session.ask`, Kernel Tuner's through `CostFunc` and its simulation runner."""
    found = {}
    for name in ("convolution_milo/A100", "dedispersion_milo/W7800"):
        (recording,) = catalog.select(name, root)
        space = recording.space
        order = np.random.default_rng(0).permutation(len(space))[:2_000]
        asked = [space.configurations[i] for i in order]
        make = kernel_tuners_cost_function(recording, root / "cachefiles" / f"{name}.json.gz")
        sides = {
            "ours": functools.partial(_each, lambda r=recording: Session(r, Limits()).ask, asked),
            "kernel_tuner": functools.partial(_each, make, asked),
        }
        sides["ours"]()  # builds the look-up table, once per recording
        result = interleaved(sides, rounds)
        found[name] = {
            "ours_us": 1e6 * result["ours_s"], "kernel_tuner_us": 1e6 * result["kernel_tuner_s"], "ratio": result["ratio"],
        }  # fmt: skip
    return found


def _each(make: Callable[[], Callable[[Any], float]], asked: list[Any]) -> float:
    """CPU seconds per evaluation with a fresh function."""
    function = make()
    return timed(lambda: [function(c) for c in asked]) / len(asked)


def kernel_tuners_cost_function(recording: Any, path: Path) -> Callable[[], Callable[[Any], float]]:
    """A maker of fresh cost functions of Kernel Tuner's simulation mode, over the same cache file."""
    import gzip

    from kernel_tuner.interface import Options
    from kernel_tuner.runners.simulation import SimulationRunner
    from kernel_tuner.searchspace import Searchspace as Theirs
    from kernel_tuner.strategies.common import CostFunc
    from kernel_tuner.util import TuningBudget, read_cache

    space = recording.space
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "cache.json"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        cache = read_cache(str(plain), open_cache=False)["cache"]
    theirs = Theirs(space.tune_params, [r.text for r in space.restrictions], 10**9)

    def make() -> Callable[[Any], float]:
        kernel_options = Options(kernel_name="k")
        runner = SimulationRunner(None, kernel_options, Options(quiet=True), 1, [])
        options = Options(
            strategy_options=Options({}), objective=["time"], objective_higher_is_better=[False], cache=cache, metrics=None,
            tune_params=space.tune_params, budget=TuningBudget(10**9, len(space)), restrictions=None, verbose=False,
        )  # fmt: skip
        function = CostFunc(theirs, options, runner, scaling=False, snap=False)
        return lambda configuration: function(configuration)

    return make


if __name__ == "__main__":
    main()
