"""The optimizers by name: what a configuration file or a command line says."""

from __future__ import annotations

import difflib
from typing import Any

from .optim import CELO2, ELO, ELOCELO2, MuLO, SmallFCLOpt, VeLO
from .optim.base import LearnedOptimizer

OPTIMIZERS: dict[str, type[LearnedOptimizer]] = {
    "small_fc": SmallFCLOpt,
    "mulo": MuLO,
    "velo": VeLO,
    "celo2": CELO2,
    "elo": ELO,
    "elo_celo2": ELOCELO2,
}


def available() -> list[str]:
    """Names that `create` knows."""
    return list(OPTIMIZERS)


def create(name: str, params: Any, **options: Any) -> LearnedOptimizer:
    """An optimizer by name; `options` are its constructor's. ValueError lists the allowed names."""
    if name not in OPTIMIZERS:
        close = difflib.get_close_matches(name, OPTIMIZERS, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"unknown learned optimizer {name!r}{hint}; allowed: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name](params, **options)
