"""gp_general under the estimator `atm`, to be read beside published numbers: whole budgets, runs not cut short.

python benchmarks/zoo/atm.py --root HUB [--repeats 5]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evotune.zoo.gp_general import GPGeneral
from metabench import catalog, provenance
from metabench.files import write_json
from metabench.score import score

TRAIN, TEST = ("A100", "A4000", "MI250X"), ("A6000", "W6600", "W7800")


def main() -> None:
    """Means over the splits, with the estimator's interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the benchmark hub")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    names = [f"{k}_milo/{d}" for k in ("convolution", "dedispersion") for d in TRAIN + TEST]
    recordings = catalog.select(names, options.root)
    scores = score({"gp_general": GPGeneral}, recordings, options.repeats, 0, estimators=("atm",))
    leave_out = {
        "all 12": [],
        "train": [n for n in names if n.endswith(TEST)],
        "test": [n for n in names if n.endswith(TRAIN)],
    }
    means = {split: scores.mean("gp_general", without, "atm") for split, without in leave_out.items()}
    report = {
        "means": {split: [e.mean, e.low, e.high] for split, e in means.items()},
        "spaces": {n: scores.on("gp_general", n, "atm").mean for n in names},
        "repeats": options.repeats,
        "command": f"python benchmarks/zoo/atm.py --root HUB --repeats {options.repeats}",
        "provenance": provenance.stamp(),
    }
    write_json(Path(__file__).with_suffix(".json"), report)
    print({split: str(e) for split, e in means.items()})


if __name__ == "__main__":
    main()
