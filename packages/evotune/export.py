"""The best program of a run as one file: it stands alone, says where it comes from, and drops into Kernel Tuner.

from best import strategy
kernel_tuner.tune_kernel(..., strategy=strategy())
"""

from __future__ import annotations

import hashlib
import pprint
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metabench.errors import UserError
from metabench.files import write_atomic

from .archive import Archive, Candidate
from .contract import optimizer_class

ARCHIVE, PROGRAM = "archive.sqlite", "best.py"

_HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Written by a generator and selected by evolution; see PROVENANCE at the end. As a strategy of Kernel Tuner:
#     kernel_tuner.tune_kernel(..., strategy=strategy())
"""
_FOOTER = '''

def strategy():
    """What `kernel_tuner.tune_kernel(strategy=...)` takes."""
    from kernel_tuner.strategies.wrapper import OptAlgWrapper

    return OptAlgWrapper({name}())


PROVENANCE = {provenance}
'''


def render(source: str, provenance: Mapping[str, Any]) -> str:
    """The file's text: a header, the program as it was evaluated, a factory for Kernel Tuner, where it comes from."""
    told = pprint.pformat(dict(provenance), width=100, sort_dicts=False)
    return _HEADER + source.rstrip() + "\n" + _FOOTER.format(name=optimizer_class(source), provenance=told)


def provenance(
    candidate: Candidate, settings: Mapping[str, Any], runs: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Any]:
    """Where a candidate comes from: model, prompt, spaces it was evolved on, scores and how they were taken.

    Args:
        settings: of the run, from its archive.
        runs: P of every confirming run on fresh seeds, by recording; None if there were none.
    """
    scores = {name: sum(p) / len(p) for name, p in (runs or candidate.runs).items()}
    return {
        "kind": "evolved",
        "description": candidate.description,
        "model": candidate.model or settings["model"],
        "prompt_sha256": hashlib.sha256(candidate.prompt.encode()).hexdigest(),
        "source_sha256": hashlib.sha256(candidate.source.encode()).hexdigest(),
        "spaces": sorted(scores),
        "call": candidate.call,
        "seed": settings["seed"],
        "scores": {name: round(p, 4) for name, p in scores.items()},
        "estimator": "direct",
        "repeats": len(next(iter((runs or candidate.runs).values()))),
        "fresh_seeds": runs is not None,
    }


def export(run: Path | str, to: Path | str) -> Path:
    """Write the best program of a run to a file.

    A run that was interrupted before its finalists were confirmed has its best candidate so far exported, and the file says so
    (`fresh_seeds` is false).

    Args:
        run: the run's folder.
        to: the file; its name ends in .py.

    Raises:
        UserError: there is no run, or none of its candidates is valid, or the name does not end in .py.
    """
    run, to = Path(run), Path(to)
    if to.suffix != ".py":
        raise UserError(f"a program is exported to a Python file; {to} does not end in .py")
    if (run / PROGRAM).is_file():
        return write_atomic(to, (run / PROGRAM).read_text())
    with Archive.open(run / ARCHIVE) as archive:
        valid = [c for c in archive.candidates() if c.score is not None]
        if not valid:
            raise UserError(f"{run} has no valid candidate to export")
        best = max(valid, key=lambda c: c.score or 0.0)
        return write_atomic(to, render(best.source, provenance(best, archive.settings())))
