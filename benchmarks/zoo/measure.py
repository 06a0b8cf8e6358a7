"""The zoo on real spaces: every score with its interval, its repeats and this command.

    python benchmarks/zoo/measure.py --root HUB [--variants a,b] [--repeats 25] [--only-summary]

A cell is one variant on one space, estimator `direct`, with the space's own seeds (`pairs.seeds_of`), so that any two variants
are paired. Cells are written as they are done, into benchmarks/zoo/scores.json, with P of every run; a second call goes on where
the first stopped, so that an optimizer that was changed needs its cells deleted.
A run is ended when it has measured the optimum: from there on P cannot change.

Where names are in question the space itself is changed, so that no option of the optimizer is involved: `blind` calls the
parameters p0, p1, ... and shows no restrictions; `misleading` gives block sizes the names of tile sizes and the other way round;
`reversed` hands out the names in reverse order.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evotune.zoo.gp_general import GPGeneral
from evotune.zoo.gp_transfer import GPTransfer
from metabench import bootstrap, catalog, provenance, registry
from metabench.baseline import Baseline, baseline
from metabench.files import write_json
from metabench.pairs import seeds_of
from metabench.recording import Recording
from metabench.replay import Limits, replay
from metabench.score import performance

OUT = Path(__file__).with_name("scores.json")
TRAIN, TEST = ("A100", "A4000", "MI250X"), ("A6000", "W6600", "W7800")
KERNELS = ("convolution_milo", "dedispersion_milo")
SPLITS = {
    "train": [f"{k}/{d}" for k in KERNELS for d in TRAIN],
    "test": [f"{k}/{d}" for k in KERNELS for d in TEST],
    "clblast": ["gemm_clblast/RTX_2080_Ti", "gemm_clblast/RTX_Titan"],
}
SMALLEST = "convolution_milo/W6600"  # 15 evaluations: most of the noise of a mean; means are given without it too
PEERS = ("adaptive_tabu_greywolf", "hybrid_vndx", "diff_evo", "genetic_algorithm", "pso", "simulated_annealing")


def swapped(names: Sequence[str]) -> list[str]:
    """Block sizes called tile sizes, and the other way round."""
    return [n.replace("block_size", "@").replace("tile_size", "block_size").replace("@", "tile_size") for n in names]


RENAMINGS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "blind": lambda names: [f"p{j}" for j in range(len(names))],
    "misleading": swapped,
    "reversed": lambda names: list(reversed(names)),
}
VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {  # name: (optimizer, its options, renaming)
    "gp_general": ("gp_general", {}, ""),
    "gp_general, blind": ("gp_general", {}, "blind"),
    "gp_general, misleading": ("gp_general", {}, "misleading"),
    "gp_general, reversed": ("gp_general", {}, "reversed"),
    "gp_general, names alone": ("gp_general", {"structure": False}, ""),
    "gp_general, names alone, misleading": ("gp_general", {"structure": False}, "misleading"),
    "gp_general, no prior": ("gp_general", {"structure": False}, "blind"),
    "gp_transfer": ("gp_transfer", {}, ""),
    "gp_transfer, shuffled sources": ("gp_transfer", {"spoilt": "shuffled"}, ""),
    "gp_transfer, inverted sources": ("gp_transfer", {"spoilt": "inverted"}, ""),
    "hybrid_vndx_fixed": ("hybrid_vndx_fixed", {}, ""),
    "hybrid_vndx_fixed, worst elites": ("hybrid_vndx_fixed", {"faults": True}, ""),
    "adaptive_tabu_greywolf_fixed": ("adaptive_tabu_greywolf_fixed", {}, ""),
    "adaptive_tabu_greywolf_fixed, schedule by 5,000": ("adaptive_tabu_greywolf_fixed", {"faults": True}, ""),
    **{name: (name, {}, "") for name in PEERS},
}


class Measure:
    """The recordings, and one variant on one of them."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.known: dict[str, tuple[Recording, Baseline]] = {}

    def get(self, name: str) -> tuple[Recording, Baseline]:
        """A recording and its baseline."""
        if name not in self.known:
            recording = catalog.select([name], None if name.split("/")[0] in ("gemm", "convolution") else self.root)[0]
            self.known[name] = (recording, baseline(recording))
        return self.known[name]

    def factory(self, optimizer: str, options: dict[str, Any], space: str) -> Callable[[], Any]:
        """A fresh optimizer for every run; transfer gets the other training devices."""
        if optimizer == "gp_general":
            return lambda: GPGeneral(**options)
        if optimizer != "gp_transfer":
            return registry.make(optimizer, **options)
        kernel, device = space.split("/")
        sources = [self.get(f"{kernel}/{other}")[0] for other in TRAIN if other != device]
        if "spoilt" in options:
            sources = [SPOILT[options["spoilt"]](source, k) for k, source in enumerate(sources)]
        return lambda: GPTransfer(sources)

    def cell(self, variant: str, space: str, repeats: int, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """P of every run, and what it took; `known` is the same with fewer runs, which are not run again."""
        optimizer, options, renaming = VARIANTS[variant]
        recording, base = self.get(space)
        factory = self.factory(optimizer, options, space)
        played = renamed(recording, RENAMINGS[renaming]) if renaming else recording
        known = known or {"p": [], "found": 0.0, "evaluations": 0, "cpu_ms": 0.0}
        scores, count = list(known["p"]), known["evaluations"]
        found, cpu = known["found"] * len(scores), 1e-3 * known["cpu_ms"] * count
        for seed in seeds_of(recording.name, 0, repeats)[len(scores) :]:
            trace = replay(factory(), played, Limits(seconds=base.end, loss=base.optimum), seed)
            if trace.error:
                raise RuntimeError(f"{variant} on {space} with seed {seed}: {trace.error}")
            scores.append(round(performance(trace, played, base), 5))
            cpu, count = cpu + trace.overhead, count + len(trace.rows)
            found += trace.ended == "found"
        return {
            "p": scores, "found": found / repeats, "evaluations": count, "cpu_ms": round(1e3 * cpu / max(count, 1), 2),
        }  # fmt: skip


def renamed(recording: Recording, naming: Callable[[Sequence[str]], list[str]]) -> Recording:
    """The same recording under other parameter names, restrictions not shown."""
    space = copy.copy(recording.space)
    space.names, space.restrictions = tuple(naming(space.names)), ()
    return dataclasses.replace(recording, space=space)


def shuffled(recording: Recording, seed: int) -> Recording:
    """A source that knows nothing: its values belong to other configurations."""
    order = np.random.default_rng(seed).permutation(len(recording.space))
    return dataclasses.replace(recording, values=recording.values[order], status=recording.status[order])


def inverted(recording: Recording, seed: int) -> Recording:
    """A source that is wrong about everything: its best is the worst."""
    return dataclasses.replace(recording, values=1.0 / recording.values)


SPOILT = {"shuffled": shuffled, "inverted": inverted}


def summary(cells: dict[str, Any]) -> dict[str, Any]:
    """Means over splits with intervals, and gp_general's paired lead over everything else."""
    out: dict[str, Any] = {}
    spaces = {**SPLITS, "all 12": SPLITS["train"] + SPLITS["test"]}
    for split in ("train", "test", "all 12"):
        spaces[f"{split} without conv. W6600"] = [s for s in spaces[split] if s != SMALLEST]
    spaces.pop("train without conv. W6600")
    for variant in VARIANTS:
        for split, names in spaces.items():
            runs = [cells.get(f"{variant} | {s}") for s in names]
            if all(runs):
                estimate = bootstrap.over_repeats([np.array(r["p"]) for r in runs if r])
                row = {
                    "mean": estimate.mean,
                    "low": estimate.low,
                    "high": estimate.high,
                    "repeats": [len(r["p"]) for r in runs],
                }
                lead = paired(cells, "gp_general", variant, names)
                out.setdefault(variant, {})[split] = row | ({"gp_general leads by": lead} if lead else {})
    return out


def paired(cells: dict[str, Any], ours: str, theirs: str, names: list[str]) -> list[float] | None:
    """Mean difference with its interval over the seeds that both ran."""
    if ours == theirs or any(f"{ours} | {s}" not in cells for s in names):
        return None
    a, b = ([np.array(cells[f"{v} | {s}"]["p"]) for s in names] for v in (ours, theirs))
    both = [min(len(x), len(y)) for x, y in zip(a, b, strict=True)]
    estimate = bootstrap.paired_difference(
        [x[:n] for x, n in zip(a, both, strict=True)], [y[:n] for y, n in zip(b, both, strict=True)]
    )
    return [round(v, 4) for v in (estimate.mean, estimate.low, estimate.high)]


def main() -> None:
    """Fill in the cells that are missing, then the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--variants", default=";".join(VARIANTS), help="separated by semicolons")
    parser.add_argument("--splits", default="test,train,clblast")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--only-summary", action="store_true")
    options = parser.parse_args()
    measure = Measure(options.root)
    report = json.loads(OUT.read_text()) if OUT.is_file() else {"cells": {}}
    for variant in () if options.only_summary else options.variants.split(";"):
        for space in (s for split in options.splits.split(",") for s in SPLITS[split]):
            if variant.startswith("gp_transfer") and space.startswith("gemm"):
                continue
            key = f"{variant} | {space}"
            if len(report["cells"].get(key, {}).get("p", ())) >= options.repeats:
                continue
            started = time.time()
            report["cells"][key] = measure.cell(variant, space, options.repeats, report["cells"].get(key))
            store(report)
            print(f"{key}: {np.mean(report['cells'][key]['p']):.3f} ({time.time() - started:.0f} s)", flush=True)
    store(report)


def store(report: dict[str, Any]) -> None:
    """Write cells and summary."""
    report["summary"] = summary(report["cells"])
    report["command"] = "python benchmarks/zoo/measure.py --root HUB"
    report["provenance"] = provenance.stamp()
    write_json(OUT, report)


if __name__ == "__main__":
    main()
