"""Figures of scores and of spaces, each as PNG, SVG and the CSV of what it shows. matplotlib is only imported to draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .figures import GREY, figure, legend_below, log_ticks, save, style
from .recording import Recording
from .score import Scores
from .summary import ranked

_EVERY = 10  # of the 1,000 points of a curve, what goes into the CSV
_START = 0.02  # of the budget, in which curves fall from anywhere; it does not stretch the axis


def draw_all(scores: Scores, folder: Path, recordings: Sequence[Recording] = ()) -> list[Path]:
    """Every figure that these scores allow; those of the spaces need their recordings."""
    scores = scores.complete()
    if not scores.optimizers:
        return []
    title = f"{len(scores.recordings)} spaces, {scores.repeats} repeats"
    written = performance_over_time(scores, folder / "performance_over_time", title)
    if "direct" in scores.estimators:
        for name in scores.recordings:
            written += performance_on(scores, name, folder / "performance" / name.replace("/", "_"))
    if len(scores.recordings) > 1:
        written += heatmap(scores, folder / "heatmap")
        written += boxes(scores, folder / "boxes")
    return written + (distributions(recordings, folder / "distributions") if recordings else [])


# ---------------------------------------------------------------------------------------------------------------------
# Over time


def performance_over_time(scores: Scores, stem: Path, title: str = "") -> list[Path]:
    """Mean progress curve of each optimizer over the relative budget, all recordings weighing the same, with a 95 % band.

    The band is the bootstrap interval of the mean over repeats, pointwise; scores under `atm` alone have none.
    """
    estimator = scores.estimators[0]
    relative = np.linspace(0, 1, scores.curves.shape[-1])
    drawn, axes = figure()
    rows: list[dict[str, Any]] = []
    for i, optimizer in enumerate(scores.optimizers):
        mean, low, high = _band(_curves(scores, optimizer))
        p = scores.mean(optimizer, estimator=estimator).mean
        axes.plot(relative, mean, label=f"{optimizer}  {p:.2f}", linewidth=1.8, **style(i))
        axes.fill_between(relative, low, high, color=style(i)["color"], alpha=0.15, linewidth=0)
        rows += _points(optimizer, "relative_time", relative, mean, low, high)
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set(xlabel="fraction of the budget spent", ylabel="0 = random search, 1 = optimum", title=title, xlim=(0, 1))
    axes.set_ylim(max(-1.0, axes.get_ylim()[0]), min(1.02, axes.get_ylim()[1]))
    legend_below(drawn, axes, f"optimizer and mean P ({estimator})")
    return save(drawn, rows, stem)


def performance_on(scores: Scores, recording: str, stem: Path) -> list[Path]:
    """Best value known over simulated time on one recording, with 95 % bands, random search and the optimum."""
    base, j = scores.baselines[recording], scores.recordings.index(recording)
    sign = -1.0 if base.optimum < 0 else 1.0  # losses of a maximised objective are negative
    drawn, axes = figure()
    rows: list[dict[str, Any]] = []
    settled = slice(int(_START * len(base.grid)), None)
    reach = np.abs(base.curve - base.optimum)[settled].max()
    for i, optimizer in enumerate(scores.optimizers):
        best = base.curve - scores.curves[i, j] * (base.curve - base.optimum)
        mean, low, high = _band(sign * best[None])
        reach = max(reach, *(np.abs(curve - sign * base.optimum)[settled].max() for curve in (mean, low, high)))
        p = scores.on(optimizer, recording).mean
        axes.plot(base.grid, mean, label=f"{optimizer}  {p:.2f}", linewidth=1.8, **style(i))
        axes.fill_between(base.grid, low, high, color=style(i)["color"], alpha=0.15, linewidth=0)
        rows += _points(optimizer, "seconds", base.grid, mean, low, high)
    axes.plot(base.grid, sign * base.curve, color=GREY, linewidth=1.2, linestyle="--", label="random search (baseline)")
    axes.axhline(sign * base.optimum, color=GREY, linewidth=0.8, label="optimum")
    rows += _points("random search (baseline)", "seconds", base.grid, *3 * [sign * base.curve])
    axes.set(xlabel="simulated seconds", ylabel="best value so far", title=recording, xlim=(0, base.end))
    if base.median > 1.5 * base.optimum > 0:
        axes.set_yscale("log")  # what matters happens near the optimum
        ticks = log_ticks(*axes.get_ylim())
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
    else:
        axes.set_ylim(*sorted(sign * base.optimum + sign * reach * np.array([-0.06, 1.04])))
    legend_below(drawn, axes, "optimizer and P (direct)")
    return save(drawn, rows, stem)


def _curves(scores: Scores, optimizer: str) -> np.ndarray:
    """Progress curves, (recordings, repeats, points); under `atm` alone, one curve stands for all repeats."""
    if "direct" in scores.estimators:
        return scores.curves[scores.optimizers.index(optimizer)]
    found = [scores.results[optimizer, name].atm_curve for name in scores.recordings]
    return np.array([np.full(scores.curves.shape[-1], np.nan) if c is None else c for c in found])[:, None]


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


def _points(optimizer: str, axis: str, at: np.ndarray, *columns: np.ndarray) -> list[dict[str, Any]]:
    thinned = [at[::_EVERY], *(column[::_EVERY] for column in columns)]
    return [
        dict(zip(("optimizer", axis, "mean", "low", "high"), (optimizer, *v), strict=True))
        for v in zip(*thinned, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Over spaces


def heatmap(scores: Scores, stem: Path) -> list[Path]:
    """P of each optimizer on each kernel (rows) and device (columns), one panel per optimizer, best mean first."""
    estimator = scores.estimators[0]
    kernels, devices = (list(dict.fromkeys(n.split("/")[k] for n in scores.recordings)) for k in (0, -1))
    order = ranked(scores, estimator)
    across = min(2, len(order))
    down = -(-len(order) // across)
    width = across * (1.8 + 0.62 * len(devices))
    drawn, axes = figure(max(width, 4.0), down * (0.75 + 0.42 * len(kernels)) + 0.8, down, across)
    panels = [axes] if len(order) == 1 else list(axes.flat)
    rows, image = [], None
    for i, (optimizer, ax) in enumerate(zip(order, panels, strict=False)):
        grid = np.full((len(kernels), len(devices)), np.nan)
        for name in scores.recordings:
            place = kernels.index(name.split("/")[0]), devices.index(name.split("/")[-1])
            grid[place] = scores.on(optimizer, name, estimator).mean
            rows.append(
                {"optimizer": optimizer, "kernel": kernels[place[0]], "device": devices[place[1]], "P": grid[place]}
            )
        image = _panel(ax, grid, kernels if i % across == 0 else [], devices if i >= len(order) - across else [])
        ax.set_title(f"{optimizer}  {scores.mean(optimizer, estimator=estimator).mean:.2f}", fontsize=9)
    for ax in panels[len(order) :]:
        ax.set_visible(False)
    drawn.colorbar(image, ax=panels, label=f"P ({estimator})", shrink=0.8, extend="both")  # beyond: the last colour
    return save(drawn, rows, stem)


def _panel(ax: Any, grid: np.ndarray, kernels: list[str], devices: list[str]) -> Any:
    image = ax.imshow(np.clip(grid, -1, 1), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for (i, j), p in np.ndenumerate(grid):
        if np.isfinite(p):
            ax.text(j, i, f"{p:.2f}", ha="center", va="center", fontsize=8, color="white" if abs(p) > 0.6 else "black")
    ax.set_xticks(range(grid.shape[1]), devices or [""] * grid.shape[1], rotation=30, ha="right", fontsize=8)
    ax.set_yticks(range(grid.shape[0]), kernels or [""] * grid.shape[0], fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


def boxes(scores: Scores, stem: Path) -> list[Path]:
    """How P of each optimizer spreads over the spaces: box and one dot per space, best median first."""
    estimator = scores.estimators[0]
    p = {o: np.array([scores.on(o, r, estimator).mean for r in scores.recordings]) for o in scores.optimizers}
    order = sorted(
        p, key=lambda o: np.nan_to_num(np.nanmedian(p[o]) if np.isfinite(p[o]).any() else np.nan, nan=-np.inf)
    )
    drawn, axes = figure(6.4, 1.2 + 0.42 * len(order))
    finite = [p[o][np.isfinite(p[o])] for o in order]
    axes.boxplot(finite, orientation="horizontal", widths=0.5, showfliers=False, medianprops={"color": "black"})
    rng = np.random.default_rng(0)
    for y, values in enumerate(finite, start=1):
        axes.plot(
            values, y + rng.uniform(-0.12, 0.12, len(values)), "o", markersize=3.5, alpha=0.7, color=style(0)["color"]
        )
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(1, len(order) + 1), order)
    axes.set(xlabel=f"P ({estimator}) on each space; 0 = random search, 1 = optimum")
    rows = [
        {"optimizer": o, "space": r, "P": v}
        for o in reversed(order)
        for r, v in zip(scores.recordings, p[o], strict=True)
    ]
    return save(drawn, rows, stem)


def distributions(recordings: Sequence[Recording], stem: Path) -> list[Path]:
    """How many times worse than the optimum the configurations of each space are: a histogram each, on a log axis."""
    across = min(3, len(recordings))
    down = -(-len(recordings) // across)
    drawn, axes = figure(3.1 * across + 0.4, 1.9 * down + 0.5, down, across)
    panels = [axes] if len(recordings) == 1 else list(axes.flat)
    rows = []
    for recording, ax in zip(recordings, panels, strict=False):
        worse = _times_worse(recording)
        edges = np.geomspace(1, max(float(worse.max()), 1.01), 41)
        counts, _ = np.histogram(worse, edges)
        ax.stairs(counts, edges, fill=True, color=style(0)["color"], alpha=0.75)
        ax.axvline(float(np.median(worse)), color=style(1)["color"], linewidth=1.4)
        ax.set_xscale("log")
        ticks = log_ticks(1, float(worse.max()) * 1.02)
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
        ax.set_title(f"{recording.name}\n{len(worse):,} valid, {recording.failures:,} failed", fontsize=8)
        ax.tick_params(labelsize=7)
        rows += [
            {"space": recording.name, "from": a, "to": b, "configurations": int(n)}
            for a, b, n in zip(edges, edges[1:], counts, strict=False)
        ]
    for ax in panels[len(recordings) :]:
        ax.set_visible(False)
    drawn.supxlabel("times worse than the optimum (line: median)", fontsize=9)
    drawn.supylabel("configurations", fontsize=9)
    return save(drawn, rows, stem)


def _times_worse(recording: Recording) -> np.ndarray:
    valid = recording.values[np.isfinite(recording.values)]
    return recording.optimum / valid if recording.maximize else valid / recording.optimum
