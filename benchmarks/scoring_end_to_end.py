"""Scoring an optimizer on the twelve public spaces: ours from end to end, and autotuning_methodology's pipeline.

    python benchmarks/scoring_end_to_end.py --root HUB [--optimizers random_search,genetic_algorithm,hybrid_vndx] [--repeats 50]

In turns, one kernel's spaces after the other's. Ours is measured whole. The package's is measured on one space of either kernel
with 2 and with 6 repeats: the difference is what a repeat costs, the rest is fixed; the kernel's six spaces at N repeats are
computed from these (a straight line, "estimated" in the JSON). CPU seconds of this process and its children. "outside": without
the optimizer's own code, as each side accounts for it. HybridVNDX finds its neighbours our way on either side: the same runs
in a fourteenth of its own time, which is left out anyway.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib
import io
import json
import os
import resource
import shutil
import tempfile
import time
import types
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from evotune.adapters.nearest import with_quick_neighbors
from metabench import catalog, provenance, registry
from metabench.files import write_json
from metabench.replay import Session
from metabench.score import score

OUT = Path(__file__).with_suffix(".json")
SPLIT = ("A100", "A4000", "MI250X", "A6000", "W6600", "W7800")
KERNELS = {"convolution_milo": "A100", "dedispersion_milo": "A4000"}
FEW, MANY = 2, 6  # repeats that the package's pipeline is measured with
STRATEGIES = {"random_search": "random_sample", "genetic_algorithm": "genetic_algorithm", "hybrid_vndx": "hybrid_vndx"}


def main() -> None:
    """Each optimizer, ours and theirs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--optimizers", default=",".join(STRATEGIES), help="which rows to measure anew")
    parser.add_argument("--repeats", type=int, default=50, help="of ours; the package's are computed for as many")
    options = parser.parse_args()
    root = Path(options.root).resolve()  # the package works in folders of its own
    report: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    report |= {
        "command": "python benchmarks/scoring_end_to_end.py --root HUB --optimizers NAME --repeats N",
        "spaces": 12,
    }
    for name in options.optimizers.split(","):
        report[name] = row(root, name, options.repeats)
        print(name, json.dumps(report[name], indent=1), flush=True)
        write_json(OUT, report | {"provenance": provenance.stamp()})


def row(root: Path, name: str, repeats: int) -> dict[str, Any]:
    """Both sides on both kernels, in turns, and how they compare."""
    ours, theirs = {}, {}
    for kernel, device in KERNELS.items():
        ours[kernel] = our_time(root, name, kernel, repeats)
        theirs[f"{kernel}/{device}"] = their_time(root, kernel, device, STRATEGIES[name], repeats)
    found: dict[str, Any] = {"repeats": repeats, "ours": ours, "autotuning_methodology": theirs}
    for ratio, state, key in (
        ("ratio", "warm", "cpu_s"), ("ratio_cold", "cold", "cpu_s"), ("ratio_outside", "warm", "outside_s"),
    ):  # fmt: skip
        if all(state in own for own in ours.values()):
            package = sum(their["estimated"][key] for their in theirs.values())
            found[ratio] = package / sum(own[state][key] for own in ours.values())
    return found


def cpu() -> float:
    """CPU seconds of this process and of the children it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# -- ours -------------------------------------------------------------------------------------------------------------


def our_time(root: Path, name: str, kernel: str, repeats: int) -> dict[str, Any]:
    """Load, replay, score, with intervals: with nothing kept from before ("cold"; random search only), and as always after."""
    names = [f"{kernel}/{device}" for device in SPLIT]
    options = {} if name == "random_search" else {"restart": False}  # as Kernel Tuner runs its strategies
    found = {}
    with tempfile.TemporaryDirectory() as folder, kept_in(folder if name == "random_search" else None):
        for state in ("cold", "warm") if name == "random_search" else ("warm",):
            started = cpu()
            recordings = catalog.select(names, root)
            scores = score({name: registry.make(name, **options)}, recordings, repeats)
            p = scores.mean(name).mean
            total = cpu() - started
            traces = [t for many in scores.traces.values() for t in many]
            # A trace's overhead is the optimizer and the replay around it: what the replay takes of it is measured.
            own = sum(t.overhead for t in traces) - sum(t.calls for t in traces) * seconds_per_call(recordings[0])
            found[state] = {"cpu_s": total, "outside_s": total - max(own, 0.0), "P": p}
    return found


@contextlib.contextmanager
def kept_in(folder: str | None) -> Any:
    """The user's cache folder, for the block."""
    before = os.environ.get("XDG_CACHE_HOME")
    if folder:
        os.environ["XDG_CACHE_HOME"] = folder
    try:
        yield
    finally:
        if folder:
            os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before)


def seconds_per_call(recording: Any) -> float:
    """What the rules of asking take of a call."""
    asked = recording.space.configurations[:2_000]
    ask = Session(recording).ask
    started = time.process_time()
    for configuration in asked:
        ask(configuration)
    return (time.process_time() - started) / len(asked)


# -- theirs -----------------------------------------------------------------------------------------------------------


def their_time(root: Path, kernel: str, device: str, strategy: str, repeats: int) -> dict[str, Any]:
    """The package's own pipeline, Kernel Tuner's simulation mode included; "estimated" for all devices of the kernel."""
    few, many = (pipeline(root, kernel, device, strategy, count) for count in (FEW, MANY))
    estimated = {}
    for key in ("cpu_s", "outside_s"):
        per_repeat = (many[key] - few[key]) / (MANY - FEW)
        estimated[key] = len(SPLIT) * (few[key] + (repeats - FEW) * per_repeat)
    return {f"{FEW} repeats": few, f"{MANY} repeats": many, "estimated": estimated}


def pipeline(root: Path, kernel: str, device: str, strategy: str, repeats: int) -> dict[str, float]:
    """CPU seconds of `get_strategy_scores` for one space."""
    with tempfile.TemporaryDirectory() as name, working_in(Path(name)) as folder:
        lay_out(root, folder, kernel, device)
        from autotuning_methodology.experiments import generate_experiment_file
        from autotuning_methodology.report_experiments import get_strategy_scores

        application = {
            "name": kernel, "folder": str(folder / "kernels"), "input_file": f"{kernel}.json",
            "objective_performance_keys": ["time"],
        }  # fmt: skip
        pattern = {"regex": str(folder / "cachefiles" / "${applications}" / "${gpus}_T4.json")}
        override = {
            "experimental_groups_defaults": {
                "repeats": repeats, "minimum_fraction_of_budget_valid": 0.01,
                "pattern_for_full_search_space_filenames": pattern,
            }
        }  # fmt: skip
        strategies = [{"name": "s", "search_method": strategy, "display_name": "s", "autotuner": "KernelTuner"}]
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
            strategies_timed_in_cpu_seconds(),
            quick_neighbors(),
        ):
            warnings.simplefilter("ignore")
            path = generate_experiment_file(
                "e", folder, strategies, [application], [device], override, overwrite_existing_file=True
            )
            started = cpu()
            scores = get_strategy_scores(str(path))
            total = cpu() - started
        own = sum(strategy_seconds(p) for p in folder.rglob("*.npz"))
    return {"cpu_s": total, "outside_s": total - own, "P": float(scores["s"]["score"])}


@contextlib.contextmanager
def strategies_timed_in_cpu_seconds() -> Any:
    """Kernel Tuner times strategies by the wall clock, which on a busy machine runs ahead of the CPU time compared here."""
    from kernel_tuner import util

    clock = types.SimpleNamespace(**{**vars(time), "perf_counter_ns": time.process_time_ns})
    with mock.patch.object(util, "time", clock):
        yield


@contextlib.contextmanager
def quick_neighbors() -> Any:
    """HybridVNDX in Kernel Tuner with our search for neighbours."""
    from kernel_tuner import interface

    module = importlib.import_module(interface._STRATEGY_IMPORTS["hybrid_vndx"])
    with mock.patch.object(module, "tune", with_quick_neighbors(module.tune)):
        yield


def strategy_seconds(path: Path) -> float:
    """The time that Kernel Tuner counts as the strategy's, from the package's stored results."""
    keys = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]
    with np.load(path, allow_pickle=True) as stored:
        told = stored["resultsdescription"].item().objective_time_keys
        per_key = stored["objective_time_results_per_key"]
    return float(np.nansum(per_key[list(told or keys).index("search_algorithm")]))


@contextlib.contextmanager
def working_in(folder: Path) -> Any:
    """The package writes into the working folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(before)


def lay_out(root: Path, folder: Path, kernel: str, device: str) -> None:
    """The hub as the package wants it: uncompressed, with a kernel source, which simulation opens and does not use."""
    (folder / "kernels").mkdir()
    shutil.copy(root / "kernels" / f"{kernel}.json", folder / "kernels")
    source = json.loads((folder / "kernels" / f"{kernel}.json").read_text())["KernelSpecification"]
    stub = folder / "kernels" / source["KernelFile"]
    stub.parent.mkdir(parents=True, exist_ok=True)
    stub.write_text(f"__global__ void {source['KernelName']}() {{}}\n")
    target = folder / "cachefiles" / kernel
    target.mkdir(parents=True)
    for name in (f"{device}.json", f"{device}_T4.json"):
        (target / name).write_bytes(gzip.decompress((root / "cachefiles" / kernel / f"{name}.gz").read_bytes()))


if __name__ == "__main__":
    main()
