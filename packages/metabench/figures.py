"""What every figure has in common: size, colours, and that it is written as PNG, SVG and the CSV of what it shows."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import write_atomic
from .results import write_csv

# Okabe-Ito: told apart by colour-blind readers, in print too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#A08A00")
STYLES = ("-", "--", ":")  # the ninth line is the first colour again, dashed
GREY = "#888888"


def style(i: int) -> dict[str, Any]:
    """Colour and dash of the i-th line."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i // len(COLOURS) % len(STYLES)]}


def figure(width: float = 6.4, height: float = 4.0, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes: one, or an array (rows, columns)."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display

    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=rows * columns == 1, **options)
    for ax in [axes] if rows * columns == 1 else axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return drawn, axes


def save(drawn: Any, rows: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Write stem.png, stem.svg and stem.csv; the same data give the same bytes."""
    import matplotlib

    written = []
    with matplotlib.rc_context({"svg.hashsalt": "metabench", "svg.fonttype": "none"}):
        for suffix in (".png", ".svg"):
            buffer = io.BytesIO()
            drawn.savefig(buffer, format=suffix[1:], dpi=160, metadata={"Date": None} if suffix == ".svg" else None)
            written.append(write_atomic(stem.with_suffix(suffix), buffer.getvalue()))
    return [*written, write_csv(rows, stem.with_suffix(".csv"))]


def legend_below(drawn: Any, axes: Any, title: str = "") -> None:
    """A legend under the axes, where it hides no curve."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(len(labels), 3)
    drawn.legend(handles, labels, title=title, frameon=False, loc="outside lower center", ncols=columns, fontsize=8)


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Readable numbers for a log axis, also over less than a decade, where matplotlib's would have none or touch each other."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in (
        (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 3, 5, 7),
        (1, 1.2, 1.5, 2, 3, 5, 7),
        (1, 1.5, 2, 3, 5, 7),
        (1, 2, 5),
        (1, 3),
        (1,),
    ):
        ticks = [round(step * 10.0**k, 12) for k in decades for step in steps]
        if len(inside := [t for t in ticks if low <= t <= high]) <= most:
            return inside
    return inside
