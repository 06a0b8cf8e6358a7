"""ELO: small_fc_lopt with the base decays and a step without its small multiplier.

    p <- p - lr (o_0 exp(exp_mult o_1) + weight_decay p)

PyLO's `ELO_naive`. Its gradients pass nan_to_num; here a step with such a gradient is skipped unless
nonfinite="propagate", which is the reference's behaviour.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ..models.small_fc import SmallFCWeights
from .small_fc import SmallFCLOpt


class ELO(SmallFCLOpt):
    """As `SmallFCLOpt`, with lr 1e-3, step_mult 1, and decay offsets 0 for checkpoints that have none."""

    replaces_nan = True
    packaged = None  # small_fc's were meta-trained for other step sizes

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        weights: str | Path | SmallFCWeights | None = None,
        *,
        step_mult: float = 1.0,
        decay_offsets: Any = "zero",
        **more: Any,
    ) -> None:
        super().__init__(params, lr, weights, step_mult=step_mult, decay_offsets=decay_offsets, **more)
