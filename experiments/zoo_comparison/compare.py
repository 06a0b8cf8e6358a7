"""The comparison over all spaces: the zoo, Kernel Tuner's strategies, and two of them with tuned hyperparameters.

    python experiments/zoo_comparison/compare.py --root HUB [--repeats 10] [--tuning-repeats 5]

Hyperparameters of genetic algorithm and simulated annealing are chosen by mean P on the training GPUs, over all combinations of
GRID, and reported on the test GPUs with other seeds. A run is ended when it has measured the optimum: P cannot change after that.
Writes comparison.json and tables.md beside this file.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metabench import bootstrap, catalog, provenance, registry
from metabench.baseline import baseline
from metabench.files import read_json, write_atomic, write_json
from metabench.pairs import seeds_of
from metabench.recording import Recording
from metabench.replay import Limits, replay
from metabench.score import progress_curve

HERE = Path(__file__).parent
TRAIN, TEST = ("A100", "A4000", "MI250X"), ("A6000", "W6600", "W7800")
KERNELS = ("convolution_milo", "dedispersion_milo")
GRID: dict[str, dict[str, Sequence[Any]]] = {
    "genetic_algorithm": {"popsize": (10, 20, 40), "mutation_chance": (5, 10, 20)},
    "simulated_annealing": {"T": (0.1, 0.5, 1.0), "alpha": (0.9, 0.975, 0.995)},
}
OPTIMIZERS = (
    "gp_general",
    "adaptive_tabu_greywolf",
    "hybrid_vndx",
    "genetic_algorithm",
    "simulated_annealing",
    "diff_evo",
    "pso",
    "random_search",
)
FRACTIONS = (0.05, 0.1, 0.25, 0.5, 1.0)  # of the budget
_TUNING_SEED = 500_000  # away from the seeds that are reported


def curves(one: registry.Named, recording: Recording, seeds: Sequence[int]) -> np.ndarray:
    """Progress curves of all runs, float64 (seeds, 1000)."""
    base = baseline(recording)
    limits = Limits(seconds=base.end, loss=base.optimum)
    traces = [replay(one(), recording, limits, seed) for seed in seeds]
    if failed := next((trace.error for trace in traces if trace.error), ""):
        raise RuntimeError(f"{one.label} on {recording.name}: {failed}")
    return np.stack([progress_curve(trace, recording, base) for trace in traces])


def choices(name: str) -> list[registry.Named]:
    """An optimizer with each combination of its hyperparameters."""
    values = itertools.product(*GRID[name].values())
    return [registry.Named(name, tuple(zip(GRID[name], chosen, strict=True))) for chosen in values]


def tune(report: dict[str, Any], recordings: Sequence[Recording], repeats: int, out: Path) -> None:
    """Mean P on the training GPUs of every combination of hyperparameters; each is written as it is known."""
    if report.get("tuning_repeats") != repeats:
        report |= {"tuning_repeats": repeats, "tuning": {}}
    for one in itertools.chain.from_iterable(map(choices, GRID)):
        known = report["tuning"].setdefault(one.name, {})
        if one.label not in known:
            own = [curves(one, r, seeds_of(r.name, _TUNING_SEED, repeats)) for r in recordings if r.device in TRAIN]
            known[one.label] = round(float(np.mean(own)), 4)
            write_json(out, report)
            print(one.label, known[one.label], flush=True)


def tables(report: Mapping[str, Any]) -> str:
    """Everything that was measured, as Markdown."""
    runs = {name: [np.array(p) for p in cells.values()] for name, cells in report["p"].items()}
    test = [j for j, space in enumerate(next(iter(report["p"].values()))) if space.endswith(TEST)]
    ranked = sorted(runs, key=lambda name: -float(np.mean([p.mean() for p in runs[name]])))
    compared = bootstrap.compare(runs, [(ranked[0], other) for other in ranked[1:]])
    lead = {ranked[0]: "", **{c.worse: f"{c.difference} (p = {c.p:.4f})" for c in compared}}
    lines = [
        "P under `direct`, mean over the spaces, 95 % interval over runs; the lead of the first over each, paired by seed,",
        "with its p-value adjusted after Holm; the standard deviation of single runs, mean over the spaces (stability).", "",
        "| | all 12 | test GPUs | lead of the first | deviation of a run |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name in ranked:
        deviation = np.mean([p.std(ddof=1) for p in runs[name]])
        over = [bootstrap.over_repeats(cells) for cells in (runs[name], [runs[name][j] for j in test])]
        lines.append(f"| {name} | {over[0]} | {over[1]} | {lead[name]} | {deviation:.2f} |")
    lines += [
        "",
        "Convergence: progress from random search to the optimum at a fraction of the budget, in the mean.",
        "",
    ]
    lines += [f"| | {' | '.join(f'{100 * f:g} %' for f in FRACTIONS)} |", "|---" * (len(FRACTIONS) + 1) + "|"]
    lines += [f"| {n} | {' | '.join(f'{v:.2f}' for v in report['convergence'][n])} |" for n in ranked]
    where = f"chosen on the training GPUs (mean P there, {report['tuning_repeats']} runs a space; the first is taken)"
    lines += ["", f"Hyperparameters, {where}:", ""]
    for name, found in report["tuning"].items():
        order = sorted(found, key=lambda label: -found[label])
        lines.append(f"- {name}: " + ", ".join(f"{label.removeprefix(name)} {found[label]:.3f}" for label in order))
    missing = [name for name in OPTIMIZERS if name not in runs]
    return "\n".join([*lines, "", f"Not run: {', '.join([*missing, 'programs evolved by a language model'])}.", ""])


def main() -> None:
    """Tune, run, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--tuning-repeats", type=int, default=5)
    parser.add_argument("--only-tables", action="store_true")
    options = parser.parse_args()
    out = HERE / "comparison.json"
    report = read_json(out) if out.is_file() else {"tuning": {}, "p": {}, "convergence": {}}
    if not options.only_tables:
        recordings = catalog.select([f"{k}/{d}" for k in KERNELS for d in TRAIN + TEST], options.root)
        tune(report, recordings, options.tuning_repeats, out)
        best = [max(choices(name), key=lambda one: report["tuning"][name][one.label]) for name in GRID]
        wanted = {o.label: o for o in [*best, *map(registry.Named, OPTIMIZERS)]}
        for kind in ("p", "convergence"):  # without combinations that an earlier tuning chose
            report[kind] = {label: value for label, value in report[kind].items() if label in wanted}
        for one in wanted.values():
            if one.label in report["p"]:
                continue  # a second call goes on where the first stopped
            found = {r.name: curves(one, r, seeds_of(r.name, 0, options.repeats)) for r in recordings}
            report["p"][one.label] = {name: [round(float(p), 5) for p in c.mean(axis=1)] for name, c in found.items()}
            ends = np.mean([c[:, [round(f * 999) for f in FRACTIONS]].mean(axis=0) for c in found.values()], axis=0)
            report["convergence"][one.label] = ends.round(4).tolist()
            report |= {
                "command": f"compare.py --root HUB --repeats {options.repeats} --tuning-repeats {options.tuning_repeats}",
                "provenance": provenance.stamp(),
            }
            write_json(out, report)
            print(one.label, flush=True)
    write_atomic(HERE / "tables.md", tables(read_json(out)))


if __name__ == "__main__":
    main()
