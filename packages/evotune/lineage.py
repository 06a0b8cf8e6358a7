"""The page about a run: what came out, how it got there, what failed, what it cost. From the archive, so also while it runs."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metabench import figures
from metabench.errors import UserError
from metabench.files import read_json, write_atomic

from .archive import Archive, Candidate
from .export import ARCHIVE
from .savings import savings

PAGE, FIGURES, SUMMARY = "report.md", "report", "evolution.json"
Row = Sequence[object]


def report(run: Path | str) -> Path:
    """Write the page of a run, report.md, and its figures into the run's folder.

    Returns:
        The page.

    Raises:
        UserError: there is no run, or nothing of it yet.
    """
    run = Path(run)
    with Archive.open(run / ARCHIVE) as archive:
        candidates, settings = archive.candidates(), archive.settings()
    if not candidates:
        raise UserError(f"{run} has made no call yet")
    told: dict[str, Any] = read_json(run / SUMMARY) if (run / SUMMARY).is_file() else {}
    best = _chosen(candidates, told)
    _draw_scores(candidates, best, run / FIGURES / "best_over_calls")
    if best is not None:
        _draw_lineage(candidates, best, run / FIGURES / "lineage")
    parts = [_summary(run, candidates, settings, told, best), _lineage(candidates, best), _failures(candidates)]
    parts += [_mutations(candidates), _models(candidates, told)]
    return write_atomic(run / PAGE, "\n\n".join(part for part in parts if part) + "\n")


def ancestry(candidates: Sequence[Candidate], best: Candidate) -> list[Candidate]:
    """A candidate and all that it descends from, by call."""
    by_call = {candidate.call: candidate for candidate in candidates}
    found: dict[int, Candidate] = {}
    front = [best.call]
    while front:
        call = front.pop()
        if call not in found and call in by_call:
            found[call] = by_call[call]
            front += by_call[call].parents
    return [found[call] for call in sorted(found)]


def _chosen(candidates: Sequence[Candidate], told: Mapping[str, Any]) -> Candidate | None:
    """The run's result; of a run under way, the best so far."""
    if told.get("best"):
        return next(c for c in candidates if c.call == told["best"]["call"])
    valid = [c for c in candidates if c.score is not None]
    return max(valid, key=lambda c: c.score or 0.0, default=None)


# -- the page ---------------------------------------------------------------------------------------------------------


def _table(header: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    """As a Markdown cell: what a model or a candidate wrote must not break the table, or be taken for markup."""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("`", "'")


def _summary(
    run: Path,
    candidates: Sequence[Candidate],
    settings: Mapping[str, Any],
    told: Mapping[str, Any],
    best: Candidate | None,
) -> str:
    ended = told.get("ended", "still under way, or interrupted")
    failed = sum(c.failure is not None for c in candidates)
    lines = [
        f"# Evolution {run.resolve().name}",
        f"{len(candidates)} of {settings['calls']} calls to {settings['model']}, seed {settings['seed']}; {failed} candidates "
        f"failed. Ended: {ended}. Spaces: {', '.join(settings['recordings'])}; {settings['repeats']} repeats.",
    ]
    if best is None:
        return "\n\n".join([*lines, "No candidate was valid."])
    text = f"**Best: {best.name}**, call {best.call}. {_cell(best.description)} P {best.score:.3f} when it was selected"
    if told.get("best"):
        rows = [[name, sum(p) / len(p), len(p)] for name, p in told["best"]["runs"].items()]
        lines += [
            f"{text}, **{told['best']['score']:.3f} on fresh seeds**.",
            _table(["space", "P on fresh seeds", "runs"], rows),
        ]
    else:
        lines.append(f"{text}; not confirmed on fresh seeds yet.")
    lines.append(f"![Scores over the calls]({FIGURES}/best_over_calls.png)")
    saved = savings([c for c in candidates if c.status != "pending"], settings["repeats"]).describe()
    return "\n\n".join([*lines, f"{saved[0].upper()}{saved[1:]}."])


def _lineage(candidates: Sequence[Candidate], best: Candidate | None) -> str:
    if best is None:
        return ""
    line = ancestry(candidates, best)
    rows = [
        [
            c.call,
            c.generation,
            c.operator or "first program",
            ", ".join(map(str, c.parents)) or "-",
            _score(c),
            c.description,
        ]
        for c in line
    ]
    header = ["call", "generation", "mutation", "parents", "P", "idea"]
    figure = f"![Where the best comes from]({FIGURES}/lineage.png)"
    return f"## Where the best comes from\n\n{figure}\n\n{_table(header, rows)}"


def _failures(candidates: Sequence[Candidate]) -> str:
    failed = [c for c in candidates if c.failure is not None]
    if not failed:
        return "## Failures\n\nNone."
    counts = Counter(str(c.failure.kind) for c in failed if c.failure)
    first = {str(c.failure.kind): c for c in reversed(failed) if c.failure}
    rows = [[kind, count, first[kind].call, str(first[kind].failure)[:300]] for kind, count in counts.most_common()]
    return f"## Failures by kind\n\n{_table(['kind', 'candidates', 'first: call', 'reason'], rows)}"


def _mutations(candidates: Sequence[Candidate]) -> str:
    scores = {c.call: _fitness(c) for c in candidates}
    tried: defaultdict[str, list[bool]] = defaultdict(list)
    for c in candidates:
        if c.parents:
            tried[c.operator].append(_fitness(c) > max(scores.get(parent, -math.inf) for parent in c.parents))
    if not tried:
        return ""
    rows = [[name, len(won), sum(won)] for name, won in sorted(tried.items(), key=lambda item: -sum(item[1]))]
    return f"## Mutations\n\n{_table(['mutation', 'offspring', 'better than their parents'], rows)}"


def _models(candidates: Sequence[Candidate], told: Mapping[str, Any]) -> str:
    by_model: defaultdict[str, list[Candidate]] = defaultdict(list)
    for c in candidates:
        by_model[c.model or "(no reply)"].append(c)
    rows = []
    for model, own in sorted(by_model.items()):
        tokens = [
            "unknown" if any(getattr(c, side) is None for c in own) else sum(getattr(c, side) for c in own)
            for side in ("prompt_tokens", "reply_tokens")
        ]
        rows.append([model, len(own), sum(c.failure is None for c in own), *tokens])
    usd = told.get("usage", {}).get("usd", "unknown")
    cost = "unknown" if usd == "unknown" else f"{usd:.2f} USD"
    header = ["model, as the server names it", "calls", "valid", "prompt tokens", "reply tokens"]
    return f"## Cost\n\n{cost}, by the price table of the run.\n\n{_table(header, rows)}"


def _score(candidate: Candidate) -> str:
    return candidate.status if candidate.score is None else f"{candidate.score:.3f}"


def _fitness(candidate: Candidate) -> float:
    return -math.inf if candidate.score is None else candidate.score


# -- its figures ------------------------------------------------------------------------------------------------------


def _draw_scores(candidates: Sequence[Candidate], best: Candidate | None, stem: Path) -> None:
    """Every candidate's score by call, the best so far as a line, failures at the foot."""
    drawn, axes = figures.figure(7.0, 3.8)
    valid = [c for c in candidates if c.score is not None]
    fresh, again = ([c for c in valid if c.repeated == flag] for flag in (False, True))
    blue, orange = figures.COLOURS[:2]
    axes.plot([c.call for c in fresh], [c.score for c in fresh], "o", color=blue, markersize=4, label="candidate")
    if again:
        axes.plot(
            [c.call for c in again],
            [c.score for c in again],
            "o",
            mfc="none",
            color=blue,
            markersize=4,
            label="repetition",
        )
    so_far, running = -math.inf, []
    for c in candidates:
        so_far = max(so_far, _fitness(c))
        running.append(so_far)
    if valid:
        axes.step(
            [c.call for c in candidates],
            [x if math.isfinite(x) else math.nan for x in running],
            where="post",
            color=figures.GREY,
            label="best so far",
        )
        axes.set_ylim(max(-1.0, min(c.score or 0.0 for c in valid)) - 0.1, max(running) + 0.08)
    failed = [c.call for c in candidates if c.failure is not None]
    if failed:
        foot = axes.get_ylim()[0]
        axes.plot(failed, [foot] * len(failed), "x", color=orange, markersize=5, clip_on=False, label="failed")
    if best is not None:
        axes.plot([best.call], [best.score], "*", color=orange, markersize=12, label="result")
    for before, c in itertools.pairwise(candidates):
        if c.generation > before.generation:
            axes.axvline(c.call - 0.5, color=figures.GREY, linewidth=0.4, linestyle=":")
    axes.set(xlabel="call (dotted: a new generation)", ylabel="P, mean over the spaces")
    figures.legend_below(drawn, axes)
    rows = [
        {
            "call": c.call,
            "generation": c.generation,
            "status": c.status,
            "P": c.score,
            "best": b if math.isfinite(b) else None,
        }
        for c, b in zip(candidates, running, strict=True)
    ]
    figures.save(drawn, rows, stem)


def _draw_lineage(candidates: Sequence[Candidate], best: Candidate, stem: Path) -> None:
    """The ancestors of the result, generation by generation, with what made each out of its parents."""
    line = {c.call: c for c in ancestry(candidates, best)}
    drawn, axes = figures.figure(7.0, 3.8)
    for c in line.values():
        for parent in (line[p] for p in c.parents if p in line):
            axes.plot(
                [parent.generation, c.generation],
                [_fitness(parent), _fitness(c)],
                color=figures.GREY,
                linewidth=1.0,
                zorder=1,
            )
    for c in line.values():
        last = c.call == best.call
        axes.plot(
            [c.generation],
            [c.score],
            "*" if last else "o",
            markersize=12 if last else 6,
            color=figures.COLOURS[int(last)],
            zorder=2,
        )
        label = f"{c.call} {c.operator}".strip()
        axes.annotate(label, (c.generation, _fitness(c)), xytext=(5, 5), textcoords="offset points", fontsize=8)
    axes.set(xlabel="generation", ylabel="P when it was evaluated (call, mutation)")
    axes.margins(y=0.15)
    axes.set_xlim(-0.3, best.generation + 0.8)
    axes.set_xticks(range(best.generation + 1))
    rows = [
        {
            "call": c.call,
            "generation": c.generation,
            "operator": c.operator,
            "parents": " ".join(map(str, c.parents)),
            "P": c.score,
        }
        for c in line.values()
    ]
    figures.save(drawn, rows, stem)
