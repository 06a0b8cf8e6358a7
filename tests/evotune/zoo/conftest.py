"""The optimizers of the zoo, as a parameter of tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evotune.zoo.adaptive_tabu_greywolf_fixed import AdaptiveTabuGreyWolfFixed
from evotune.zoo.gp_general import GPGeneral
from evotune.zoo.gp_transfer import GPTransfer
from evotune.zoo.hybrid_vndx_fixed import HybridVNDXFixed

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "gp_general": GPGeneral,
    "gp_transfer": GPTransfer,
    "hybrid_vndx_fixed": HybridVNDXFixed,
    "adaptive_tabu_greywolf_fixed": AdaptiveTabuGreyWolfFixed,
}


@pytest.fixture(params=OPTIMIZERS)
def make(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Each optimizer of the zoo."""
    return OPTIMIZERS[request.param]
