"""gp_general on a kernel that its numeric settings were chosen without: convolution from dedispersion, and the other way round.

    python benchmarks/zoo/left_out.py --root HUB [--repeats 25]

Nine settings are drawn at random from a grid (the default has no better chance than any other); the one with the best mean P on
the training GPUs of the other kernel is scored on all GPUs of the kernel left out, with the seeds of `measure.py`. Chosen so:
the measurements before the first posterior, the share of the space that these lie in, the priors of the noise and of the length
scales, the mean weight of the penalty. Not chosen anew, and so chosen on both kernels: the structure (kernel, features, target,
expected improvement, what the penalty says of thread blocks and tiles, the neighbours where nothing is expected) and every other
constant.
Results go to benchmarks/zoo/left_out.json; a second call goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import KERNELS, TEST, TRAIN, Measure

from evotune.zoo import gp_general
from metabench import bootstrap, provenance
from metabench.files import write_json
from metabench.pairs import seeds_of
from metabench.replay import Limits, replay
from metabench.score import performance

OUT = Path(__file__).with_suffix(".json")
GRID = {
    "initial": (2, 4, 8),
    "FAVOURED": (0.01, 0.03, 0.1),
    "NOISE": (1e-3, 1e-2, 1e-1),
    "LENGTH": (0.3, 0.6, 1.2),
    "SLOPE": (0.25, 0.5, 1.0),
}
DRAWN = 9
CHOICE_SEED, CHOICE_REPEATS = 5_000, 3


def drawn() -> list[dict[str, Any]]:
    """The settings to choose among; each value of each setting occurs equally often."""
    rng = np.random.default_rng(0)
    columns = {name: rng.permutation(np.repeat(values, DRAWN // len(values))) for name, values in GRID.items()}
    return [{name: column[i].item() for name, column in columns.items()} for i in range(DRAWN)]


def runs(measure: Measure, setting: dict[str, Any], space: str, base: int, repeats: int) -> list[float]:
    """P of each run with this setting, which stays in force: every caller sets its own."""
    for name, value in setting.items():
        if name != "initial":
            setattr(gp_general, name, value)
    recording, line = measure.get(space)
    scores = []
    for seed in seeds_of(space, base, repeats):
        optimizer = gp_general.GPGeneral(initial=int(setting["initial"]))
        trace = replay(optimizer, recording, Limits(seconds=line.end, loss=line.optimum), seed)
        if trace.error:
            raise RuntimeError(f"{setting} on {space} with seed {seed}: {trace.error}")
        scores.append(round(performance(trace, recording, line), 5))
    return scores


def chosen(measure: Measure, other: str, report: dict[str, Any]) -> dict[str, Any]:
    """The best of the drawn settings on the training GPUs of the other kernel."""
    found = report.setdefault("choice", {}).setdefault(other, {})
    for place, setting in enumerate(drawn()):
        for space in (f"{other}/{device}" for device in TRAIN):
            key, started = f"{place} | {space}", time.time()
            if key not in found:
                found[key] = runs(measure, setting, space, CHOICE_SEED, CHOICE_REPEATS)
                write_json(OUT, report)
                print(f"{key}: {np.mean(found[key]):.3f} ({time.time() - started:.0f} s)", flush=True)
    means = [np.mean([found[f"{i} | {other}/{d}"] for d in TRAIN]) for i in range(DRAWN)]
    return drawn()[int(np.argmax(means))]


def summary(cells: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Mean over the GPUs of each kernel left out, with its interval."""
    out = {}
    for kernel, spaces in cells.items():
        for split, devices in (("all", TRAIN + TEST), ("train", TRAIN), ("test", TEST)):
            if all(f"{kernel}/{d}" in spaces for d in devices):
                e = bootstrap.over_repeats([np.array(spaces[f"{kernel}/{d}"]) for d in devices])
                out[f"{kernel} | {split}"] = {"mean": e.mean, "low": e.low, "high": e.high}
    return out


def main() -> None:
    """Choose, then score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    measure = Measure(options.root)
    report = json.loads(OUT.read_text()) if OUT.is_file() else {}
    report |= {"command": "python benchmarks/zoo/left_out.py --root HUB", "drawn": drawn()}
    for kernel, other in (KERNELS, KERNELS[::-1]):
        setting = chosen(measure, other, report)
        report.setdefault("chosen", {})[f"without {kernel}"] = setting
        cells = report.setdefault("cells", {}).setdefault(kernel, {})
        for device in TEST + TRAIN:
            space = f"{kernel}/{device}"
            if len(cells.get(space, ())) < options.repeats:
                cells[space] = runs(measure, setting, space, 0, options.repeats)
                report |= {"summary": summary(report["cells"]), "repeats": options.repeats}
                report["provenance"] = provenance.stamp()
                write_json(OUT, report)
                print(f"{space}: {np.mean(cells[space]):.3f}", flush=True)
    print(report["summary"])


if __name__ == "__main__":
    main()
