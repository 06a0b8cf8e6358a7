"""Other people's strategies as optimizers of ours, and optimizers of ours as theirs.

| module | what is adapted |
|---|---|
| `kernel_tuner` | Kernel Tuner's strategies, by their names |
| `pyatf` | pyATF's search techniques, as "pyatf_de" and so on |
| `as_strategy` | ours as a Kernel Tuner strategy |
| `as_technique` | ours as a pyATF search technique (import it from there: it needs pyATF) |
"""

from __future__ import annotations

from typing import Any

from . import kernel_tuner, pyatf
from .as_strategy import as_kernel_tuner_strategy as as_kernel_tuner_strategy
from .kernel_tuner import ALIASES as ALIASES
from .kernel_tuner import KernelTunerStrategy as KernelTunerStrategy
from .kernel_tuner import kernel_tuner_names as kernel_tuner_names
from .pyatf import PyATFTechnique as PyATFTechnique
from .pyatf import pyatf_names as pyatf_names


def names() -> list[str]:
    """What can be had here: Kernel Tuner's strategies with their short names, and pyATF's techniques where it is installed."""
    theirs = kernel_tuner_names()
    return [*theirs, *(short for short, name in ALIASES.items() if name in theirs), *pyatf_names()]


def make(name: str, **options: Any) -> KernelTunerStrategy | PyATFTechnique:
    """A fresh optimizer.

    Raises:
        UserError: it is not installed, there is no such name, or it has no such option.
    """
    kind = pyatf.PyATFTechnique if name.startswith(pyatf.PREFIX) else kernel_tuner.KernelTunerStrategy
    return kind(name, **options)
