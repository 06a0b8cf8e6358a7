"""Tables and figure of the study of schedules and weight decay, from whatever runs of it exist.

    python experiments/schedules/study.py [runs/train/schedules]

Takes the runs of the folder into schedules.json beside this file (a run that is there already is replaced), and writes tables.md
and the figure from that file; without a folder only the latter. Every mean is over seeds, every spread the distance from the
least to the largest of them; a run that diverged makes its cell `diverged`.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metabench import figures
from metabench.files import read_json, write_atomic, write_json

HERE = Path(__file__).parent
STABLE = 0.9  # of an optimizer's largest fall of the loss on a task: a rate that reaches it counts as stable
NOT_RUN = "not run"
Row = Mapping[str, Any]


def collect(folder: Path) -> tuple[list[Row], dict[str, Any]]:
    """(a row for each learning rate of each finished job, versions and machine of one of them)."""
    rows: list[Row] = []
    stamp: dict[str, Any] = {}
    for path in sorted(folder.glob("*/done.json")):
        config = read_json(path)["config"]
        stamp = {
            k: v for k, v in read_json(path.with_name("provenance.json")).items() if k not in ("config", "command")
        }
        group = config["learned_optimizer"]
        plain = {k: config[k] for k in ("decay", "weight_decay", "steps", "seed")}
        own = {"task": config["task"]["name"], "optimizer": group["name"], "schedule": group["schedule"], **plain}
        for run in table_of(path.with_name("results.csv")):
            curve = path.parent / "runs" / f"{run['optimizer']}-{float(run['lr']):g}" / "curve.csv"
            losses = [float(x["loss"]) for x in table_of(curve)]
            diverged = run["diverged"] == "True"
            ends = {"first": losses[0], **{k: None if diverged else float(run[k]) for k in ("final", "mean")}}
            rows.append(
                {**own, "lr": float(run["lr"]), **{k: x if x is None else round(x, 6) for k, x in ends.items()}}
            )
    return rows, stamp


def table_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text().splitlines()))


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row[k] for k in ("task", "optimizer", "schedule", "decay", "lr", "steps", "seed"))


class Study:
    """The rows by what was varied."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.tasks = list(dict.fromkeys(r["task"] for r in rows))
        order = ["small_fc", "mulo", "celo2", "adamw"]
        self.optimizers = sorted({r["optimizer"] for r in rows}, key=lambda name: (order.index(name), name))

    def arms(self) -> list[tuple[str, str]]:
        """(schedule, decay), those without decay first."""
        schedules, decays = ["constant", "linear", "cosine", "late"], ["none", "light", "strong"]
        found = {(r["schedule"], r["decay"]) for r in self.rows}
        return sorted(found, key=lambda arm: (decays.index(arm[1]), schedules.index(arm[0])))

    def rates(self, optimizer: str) -> list[float]:
        return sorted({r["lr"] for r in self.rows if r["optimizer"] == optimizer})

    def cell(self, task: str, optimizer: str, arm: tuple[str, str], lr: float) -> list[Row]:
        """Its runs, one a seed."""
        wanted = (task, optimizer, *arm, lr)
        names = ("task", "optimizer", "schedule", "decay", "lr")
        return [r for r in self.rows if tuple(r[k] for k in names) == wanted]

    def mean(self, *cell: Any) -> float | None:
        """Final loss over seeds; infinite if one diverged, None if none was run."""
        runs = [math.inf if r["final"] is None else r["final"] for r in self.cell(*cell)]
        return statistics.mean(runs) if runs else None

    def best(self, task: str, optimizer: str) -> float:
        """The least mean final loss of an optimizer on a task over everything that was varied."""
        every = [self.mean(task, optimizer, arm, lr) for arm in self.arms() for lr in self.rates(optimizer)]
        return min((x for x in every if x is not None), default=math.nan)

    def stable(self, task: str, optimizer: str, arm: tuple[str, str]) -> list[float] | None:
        """Rates at which the mean loss falls by at least `STABLE` of the optimizer's largest fall; None if one was not run."""
        first = statistics.mean(r["first"] for r in self.rows if (r["task"], r["optimizer"]) == (task, optimizer))
        means = {lr: self.mean(task, optimizer, arm, lr) for lr in self.rates(optimizer)}
        largest = first - self.best(task, optimizer)
        found = [lr for lr, x in means.items() if x is not None and first - x >= STABLE * largest]
        return None if None in means.values() else found


def label(arm: tuple[str, str]) -> str:
    return arm[0] if arm[1] == "none" else f"{arm[0]}, {arm[1]} decay"


def shown(runs: Sequence[Row]) -> str:
    """Mean and spread of a cell."""
    if not runs:
        return NOT_RUN
    losses = [r["final"] for r in runs]
    if None in losses:
        return "diverged"
    spread = f" ({max(losses) - min(losses):.2g})" if len(losses) > 1 else " (one seed)"
    return f"{statistics.mean(losses):.3g}{spread}"


def table(study: Study, task: str, optimizer: str) -> list[str]:
    """Final loss of one optimizer on one task: schedules by rates."""
    rates = study.rates(optimizer)
    lines = [
        f"| {optimizer} | {' | '.join(f'lr {lr:g}' for lr in rates)} | stable rates |",
        "|---" * (len(rates) + 2) + "|",
    ]
    for arm in study.arms():
        cells = [shown(study.cell(task, optimizer, arm, lr)) for lr in rates]
        if any(cell != NOT_RUN for cell in cells):
            stable = study.stable(task, optimizer, arm)
            named = NOT_RUN if stable is None else ", ".join(f"{lr:g}" for lr in stable) or "none"
            lines.append(f"| {label(arm)} | {' | '.join(cells)} | {named} |")
    return [*lines, ""]


def differences(study: Study) -> list[str]:
    """What a schedule or a decay is worth at each optimizer's best constant rate and at its largest rate, paired by seed."""
    lines = [
        "| task | optimizer | change | at the rate that is best without it | at the largest rate |",
        "|---" * 5 + "|",
    ]
    arms = study.arms()
    pairs = [(("constant", "none"), arm) for arm in arms if arm[1] == "none" and arm[0] != "constant"]
    pairs += [((arm[0], "none"), arm) for arm in arms if arm[1] != "none"]
    for task in study.tasks:
        for optimizer in study.optimizers:
            rates = study.rates(optimizer)
            for before, after in pairs:
                means = {lr: x for lr in rates if (x := study.mean(task, optimizer, before, lr)) is not None}
                if not means or study.mean(task, optimizer, after, rates[-1]) is None:
                    continue
                least = min(means, key=lambda lr: means[lr])
                cells = [paired(study, task, optimizer, before, after, lr) for lr in (least, rates[-1])]
                lines.append(f"| {task} | {optimizer} | {label(before)} -> {label(after)} | {' | '.join(cells)} |")
    return [*lines, ""]


def paired(study: Study, task: str, optimizer: str, before: tuple[str, str], after: tuple[str, str], lr: float) -> str:
    """Ratio of final losses at a rate, after / before, of each seed that has both."""
    sides = [{r["seed"]: r["final"] for r in study.cell(task, optimizer, arm, lr)} for arm in (before, after)]
    both = sorted(set(sides[0]) & set(sides[1]))
    words = ["diverged" if None in (sides[0][s], sides[1][s]) else f"{sides[1][s] / sides[0][s]:.2f}" for s in both]
    return f"{', '.join(words) or NOT_RUN} (lr {lr:g})"


def page(study: Study, expected: int) -> str:
    """tables.md."""
    lines = [
        f"{len(study.rows)} trainings exist, of {expected}: two seeds, four schedules without decay, cosine with strong decay.",
        "Final training loss (last twentieth), mean over seeds, in brackets the distance from the least to the largest.",
        f"Stable rates: the loss falls by at least {100 * STABLE:.0f} % of the optimizer's largest fall on the task.", "",
    ]  # fmt: skip
    for task in study.tasks:
        steps = sorted({r["steps"] for r in study.rows if r["task"] == task})
        lines += [f"## {task}, {' and '.join(map(str, steps))} steps", ""]
        for optimizer in study.optimizers:
            lines += table(study, task, optimizer)
    lines += ["## What a change is worth", "", "Final loss after / before, one number for each seed.", ""]
    return "\n".join([*lines, *differences(study)])


def draw(study: Study, stem: Path) -> None:
    """Final loss against learning rate: a line per schedule, a panel per optimizer and task."""
    down, across = len(study.tasks), len(study.optimizers)
    drawn, panels = figures.figure(3.3 * across, 2.6 * down + 0.7, down, across, sharey="row")
    panels = [[panels]] if down * across == 1 else panels.reshape(down, across)
    rows: list[dict[str, Any]] = []
    for task, line in zip(study.tasks, panels, strict=True):
        for optimizer, axes in zip(study.optimizers, line, strict=True):
            panel(study, task, optimizer, axes, rows)
        line[0].set_ylabel(f"{task}: final training loss")
        if min(r["final"] for r in study.rows if r["task"] == task and r["final"] is not None) < 0.3:
            line[0].set_yscale("log")
            ticks = figures.log_ticks(*line[0].get_ylim())
            line[0].set_yticks(ticks, [f"{t:g}" for t in ticks])
            line[0].minorticks_off()
    figures.legend_below(drawn, panels[0][0], "means over seeds; bars from the least to the largest")
    figures.save(drawn, rows, stem)


def panel(study: Study, task: str, optimizer: str, axes: Any, rows: list[dict[str, Any]]) -> None:
    """One panel; what it shows is added to `rows`."""
    rates = study.rates(optimizer)
    for i, arm in enumerate(study.arms()):
        cells = {lr: [r["final"] for r in study.cell(task, optimizer, arm, lr)] for lr in rates}
        there = {lr: x for lr, x in cells.items() if x and None not in x}
        means = {lr: statistics.mean(x) for lr, x in there.items()}
        bars = [[means[lr] - min(x) for lr, x in there.items()], [max(x) - means[lr] for lr, x in there.items()]]
        look = {**figures.style(i), "linestyle": "-" if arm[1] == "none" else ":"}
        axes.errorbar(
            list(means), list(means.values()), bars, label=label(arm), marker="o", markersize=3.5, capsize=2, **look
        )
        rows += [{"task": task, "optimizer": optimizer, "schedule": arm[0], "decay": arm[1], "lr": lr, "seeds": len(x),
                  "mean": means[lr], "least": min(x), "largest": max(x)} for lr, x in there.items()]  # fmt: skip
    if "adamw" in study.optimizers:
        least = study.best(task, "adamw")
        axes.axhline(least, color=figures.GREY, linewidth=0.9, linestyle="--", label="adamw, best of all its runs here")
    axes.set_xscale("log")
    axes.set_xticks(rates, [f"{lr:g}" for lr in rates], fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel("lr")
    axes.set_title(optimizer, fontsize=9)


def main() -> None:
    """Collect, and write the three files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the sweep")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    kept = options.out / "schedules.json"
    report = read_json(kept) if kept.is_file() else {"rows": []}
    if options.runs is not None:
        found, stamp = collect(options.runs)
        rows = {key(r): r for r in (*report["rows"], *found)}
        report = {"command": "metaopt train experiment=schedules celo2_weights=FILE", "provenance": stamp,
                  "rows": [rows[k] for k in sorted(rows)]}  # fmt: skip
        write_json(kept, report)
    study = Study(report["rows"])
    expected = sum(len(study.rates(name)) for name in study.optimizers) * len(study.tasks) * 2 * 5
    write_atomic(options.out / "tables.md", page(study, expected))
    draw(study, options.out / "schedules")


if __name__ == "__main__":
    main()
