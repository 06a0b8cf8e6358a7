"""Figures, each as PNG, SVG and the CSV of what it shows. matplotlib is imported only when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .files import write_atomic
from .results import write_table
from .score import Scores

# Okabe-Ito: told apart by colour-blind readers, in print too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def performance_over_time(scores: Scores, stem: Path, title: str = "") -> list[Path]:
    """Mean progress curve of each optimizer over the relative budget, all recordings weighing the same, with a 95 % band.

    The band is the bootstrap interval of the mean over repeats, pointwise.
    """
    relative = np.linspace(0, 1, scores.curves.shape[-1])
    figure, axes = _figure()
    rows: list[dict[str, Any]] = []
    for i, optimizer in enumerate(scores.optimizers):
        mean, low, high = _band(scores.curves[i])
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(relative, mean, color=colour, label=f"{optimizer}  {scores.mean(optimizer).mean:.2f}", linewidth=1.8)
        axes.fill_between(relative, low, high, color=colour, alpha=0.15, linewidth=0)
        rows += [
            {"optimizer": optimizer, "relative_time": t, "mean": m, "low": lo, "high": hi}
            for t, m, lo, hi in zip(relative[::10], mean[::10], low[::10], high[::10], strict=True)
        ]
    axes.axhline(0, color="#888888", linewidth=0.8, linestyle="--")
    axes.set(xlabel="fraction of the budget spent", ylabel="0 = random search, 1 = optimum", title=title, xlim=(0, 1))
    axes.set_ylim(max(-1.0, axes.get_ylim()[0]), 1.02)
    axes.legend(title="optimizer and P", frameon=False, loc="lower right", fontsize=8, title_fontsize=8)
    return _save(figure, rows, stem)


def _band(curves: np.ndarray, resamples: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over recordings and repeats, and its pointwise interval; curves are (recordings, repeats, points)."""
    rng = np.random.default_rng(0)
    repeats = curves.shape[1]
    picks = rng.integers(repeats, size=(resamples, repeats))
    # Weights, not copies: each resample is a weighted mean of the same runs.
    weights = np.stack([np.bincount(p, minlength=repeats) for p in picks]) / repeats
    resampled = np.mean([weights @ runs for runs in curves], axis=0)
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return curves.mean(axis=(0, 1)), low, high


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # not pyplot: no global state, no display

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, rows: list[dict[str, Any]], stem: Path) -> list[Path]:
    import io

    written = []
    for suffix in (".png", ".svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix[1:], dpi=160, metadata={"Date": None} if suffix == ".svg" else None)
        written.append(write_atomic(stem.with_suffix(suffix), buffer.getvalue()))
    return written + write_table(rows, stem)[:1]
