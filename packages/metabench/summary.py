"""Scores as text: the table, the means with and without named spaces, which differences are significant, and how many repeats
it would take to see smaller ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import bootstrap
from .bootstrap import Estimate
from .results import text_table
from .score import Scores

SMALL_DIFFERENCE = 0.02
FEW_REPEATS = 10
"""Below this many repeats a percentile bootstrap covers clearly less than it says (of 3, about 75 % instead of 95 %)."""
_SEEN = "*"


def summary(scores: Scores, noisy: Sequence[str] = ()) -> str:
    """Everything there is to say, best optimizer first.

    Args:
        noisy: recordings that the means are also given without.
    """
    noisy = [name for name in noisy if name in scores.recordings]
    parts = [table(scores, estimator) for estimator in scores.estimators]
    complete = scores.complete()
    if complete.optimizers and (len(scores.recordings) > 1 or len(scores.estimators) > 1):
        parts.append(means(complete, noisy))
    if "direct" in scores.estimators and len(complete.optimizers) > 1 and scores.repeats > 1:
        parts.append(differences(complete))
    parts += notes(scores)
    return "\n\n".join(parts)


def ranked(scores: Scores, estimator: str | None = None) -> list[str]:
    """Optimizers, best mean first; those without a mean last."""
    by = estimator or scores.estimators[0]
    return sorted(scores.optimizers, key=lambda name: -np.nan_to_num(scores.mean(name, estimator=by).mean, nan=-np.inf))


def table(scores: Scores, estimator: str = "direct") -> str:
    """P of each optimizer on each space and in the mean, with 95 % intervals."""
    cells = [
        [
            name,
            *(_on(scores, name, space, estimator) for space in scores.recordings),
            _cell(scores.mean(name, estimator=estimator), ".3f"),
        ]
        for name in ranked(scores, estimator)
    ]
    grid = [[f"P ({estimator}), 95 % interval", *scores.recordings, "mean"], *cells]
    if len(scores.recordings) > len(scores.optimizers):  # the longer side goes down the page
        grid = [list(column) for column in zip(*grid, strict=True)]
    return text_table(grid[0], grid[1:])


def _on(scores: Scores, optimizer: str, space: str, estimator: str) -> str:
    if failure := scores.results[optimizer, space].failure:
        return failure.partition(":")[0]  # its kind; the notes say the rest
    return _cell(scores.on(optimizer, space, estimator), ".2f") + (_SEEN if (optimizer, space) in scores.seen else "")


def means(scores: Scores, noisy: Sequence[str] = ()) -> str:
    """Means over the spaces: under each estimator, without the noisy spaces, and for spaces like these."""
    header, columns = ["mean P, 95 % interval"], []
    for estimator in scores.estimators:
        header.append(estimator)
        columns.append([scores.mean(name, estimator=estimator) for name in ranked(scores)])
        if noisy:
            header.append(f"{estimator} without {', '.join(noisy)}")
            columns.append([scores.mean(name, noisy, estimator) for name in ranked(scores)])
    if "direct" in scores.estimators and len(scores.recordings) > 1:
        header.append("direct, spaces resampled too")
        columns.append([scores.mean_over_spaces(name) for name in ranked(scores)])
    rows = [[name, *(_cell(column[i], ".3f") for column in columns)] for i, name in enumerate(ranked(scores))]
    return text_table(header, rows)


def differences(scores: Scores) -> str:
    """Paired differences between all optimizers under `direct`, and the repeats that it takes to see a small one."""
    compared = scores.comparisons()
    rows = [
        [f"{c.better} - {c.worse}", format(c.difference, ".3f"), f"{c.p:.4f}", "yes" if c.significant else "no"]
        for c in compared
    ]
    header = ["difference in the mean (direct), paired by seed", "95 % interval", "p (Holm)", "significant"]
    lines = [text_table(header, rows)]
    spreads = [c.spread for c in compared if c.spread > 0]
    if spreads:
        needed = [bootstrap.repeats_to_see(SMALL_DIFFERENCE, s) for s in (min(spreads), float(np.median(spreads)))]
        lines.append(
            f"To see a difference of {SMALL_DIFFERENCE} with 80 % power takes {needed[0]:,} repeats for the pair that varies "
            f"least and {needed[1]:,} for the median pair; these are {scores.repeats}."
        )
    return "\n".join(lines)


def notes(scores: Scores) -> list[str]:
    """What a reader must know besides."""
    found = []
    if scores.repeats < FEW_REPEATS:
        found.append(
            f"intervals from {scores.repeats} repeats are too narrow; take {FEW_REPEATS} or more before believing one"
        )
    if scores.seen:
        found.append(f"{_SEEN} seen: its provenance says that the optimizer was evolved on this space")
    failed = [f"  {o}: {reason}" for o in scores.optimizers for reason in scores.failures(o).values()]
    if failed:
        found.append("failed, and so without a score\n" + "\n".join(failed))
    reasons = dict.fromkeys(f"{o}: {r.atm_reason}" for (o, _), r in scores.results.items() if r.atm_reason)
    if reasons:
        found.append("atm has no score for\n" + "\n".join(f"  {reason}" for reason in reasons))
    return found


def _cell(estimate: Estimate, form: str) -> str:
    return "-" if np.isnan(estimate.mean) else format(estimate, form)
