"""The exported hazard suite on every optimizer of the zoo: tiny budgets, odd spaces, failures, plateaus, seeds."""

from __future__ import annotations

from typing import Any

from evotune.zoo.adaptive_tabu_greywolf_fixed import AdaptiveTabuGreyWolfFixed
from evotune.zoo.gp_general import GPGeneral
from evotune.zoo.gp_transfer import GPTransfer
from evotune.zoo.hybrid_vndx_fixed import HybridVNDXFixed
from metabench.testing import SPACES, OptimizerSuite, recording


class TestGPGeneral(OptimizerSuite):
    def make(self) -> Any:
        return GPGeneral()


class TestGPTransferWithoutSources(OptimizerSuite):
    def make(self) -> Any:
        return GPTransfer()


class TestGPTransferWithASource(OptimizerSuite):
    """The source fits one of the spaces; on the others it has nothing to say, and that is no error."""

    def make(self) -> Any:
        known = recording(SPACES["a few hundred"], failing=0.3, seed=5)
        return GPTransfer([dict(zip(known.space.configurations, known.losses.tolist(), strict=True))])


class TestHybridVNDXFixed(OptimizerSuite):
    def make(self) -> Any:
        return HybridVNDXFixed()


class TestAdaptiveTabuGreyWolfFixed(OptimizerSuite):
    def make(self) -> Any:
        return AdaptiveTabuGreyWolfFixed()
