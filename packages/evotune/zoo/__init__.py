"""Optimizers worth keeping, one plain source file each.

Each file defines one optimizer class, and says where it comes from (`PROVENANCE`) and how it does (`SCORES`: on
every split P, its interval and the runs, written by benchmarks/zoo/enter.py, which says what was measured and how). A file stands
alone: it may be copied out and dropped into Kernel Tuner.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from metabench.errors import choose

DEFAULT = "gp_general"


@dataclass(frozen=True)
class Entry:
    """One optimizer of the zoo.

    Attributes:
        idea: first line of its docstring.
        provenance: who designed or evolved it, from what.
        scores: {split: (P, ends of its 95 % interval, runs a space)}, estimator `direct`; empty where it has not been measured.
        path: its source file.
    """

    name: str
    idea: str
    provenance: dict[str, Any]
    scores: dict[str, tuple[float, float, float, int]]
    path: Path


def names() -> list[str]:
    """Names of all optimizers in the zoo."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".py") for f in files if f.name.endswith(".py") and not f.name.startswith("_"))


def entry(name: str) -> Entry:
    """What is known of one optimizer.

    Raises:
        UserError: there is no such; the message lists the names.
    """
    choose(name, names(), "optimizer of the zoo")
    module = import_module(f"{__name__}.{name}")
    idea = (module.__doc__ or "").strip().splitlines()[0]
    path = Path(str(resources.files(__name__) / f"{name}.py"))
    return Entry(name, idea, dict(getattr(module, "PROVENANCE", {})), dict(getattr(module, "SCORES", {})), path)
