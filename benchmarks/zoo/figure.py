"""docs/figures/zoo.png and .svg: P of the zoo and of its peers against the budget of each space, from scores.json.

python benchmarks/zoo/figure.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from metabench import bootstrap

HERE = Path(__file__).parent
FIGURE = HERE.parents[1] / "docs" / "figures" / "zoo"
EVALUATIONS = {  # that the budget of estimator `direct` allows at the mean cost
    "convolution_milo/MI250X": 48, "dedispersion_milo/MI250X": 378, "convolution_milo/A100": 927, "dedispersion_milo/A100": 607,
    "convolution_milo/A4000": 268, "dedispersion_milo/A4000": 182, "convolution_milo/W6600": 15, "dedispersion_milo/W6600": 2326,
    "convolution_milo/W7800": 37, "dedispersion_milo/W7800": 700, "convolution_milo/A6000": 418, "dedispersion_milo/A6000": 289,
}  # fmt: skip
SERIES = {  # variant: (label, colour, marker)
    "gp_transfer": ("gp_transfer: recorded elsewhere", "#1b7837", "^"),
    "gp_general": ("gp_general: nothing known", "#2166ac", "o"),
    "gp_general, blind": ("gp_general, parameters renamed", "#92c5de", "s"),
    "adaptive_tabu_greywolf_fixed": ("AdaptiveTabuGreyWolf, mended", "#b2182b", "v"),
    "hybrid_vndx_fixed": ("HybridVNDX, mended", "#ef8a62", "D"),
}


def main() -> None:
    """Draw what has been measured on all twelve spaces."""
    cells = json.loads((HERE / "scores.json").read_text())["cells"]
    figure, axes = plt.subplots(figsize=(7.5, 4.2), constrained_layout=True)
    spaces = sorted(EVALUATIONS, key=lambda s: EVALUATIONS[s])
    for place, (variant, (label, colour, marker)) in enumerate(SERIES.items()):
        runs = [np.array(cells[f"{variant} | {s}"]["p"]) for s in spaces if f"{variant} | {s}" in cells]
        if len(runs) < len(spaces):
            continue
        estimates = [bootstrap.over_repeats([r]) for r in runs]
        x = [EVALUATIONS[s] * 1.025 ** (place - 2) for s in spaces]  # side by side
        mean = np.array([e.mean for e in estimates])
        bars = np.array([[e.mean - e.low, e.high - e.mean] for e in estimates]).T
        axes.errorbar(
            x, mean, yerr=bars, color=colour, marker=marker, markersize=5, linestyle="none", capsize=2, label=label
        )
    axes.set(xscale="log", xlabel="budget, evaluations", ylabel="P", ylim=(-1.4, 1.05))
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.annotate("random search", (1150, 0.02), color="0.4", fontsize=8)
    figure.legend(fontsize=8, loc="outside upper center", ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(FIGURE.with_suffix(suffix), dpi=160)


if __name__ == "__main__":
    main()
