"""ELO-CELO2: CELO2's update with other meta-weights; AdamW reads the learned rule's own moments m_0 and v.

PyLO's `ELO_CELO2_naive`. What its meta-training adds (expert and imitation losses) is not part of the step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ..models.celo2 import CELO2Weights
from .celo2 import CELO2


class ELOCELO2(CELO2):
    """As `CELO2`, with weight decay 0.1 and global clipping at norm 1 by default.

    `adam_lr_mult` is 1, as in PyLO's PyTorch class; its CUDA class of the same name has 20.
    State: 16 bytes an element and the row and column moments; 28 bytes an element of vectors.
    """

    shared_moments = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        weights: str | Path | CELO2Weights | None = None,
        *,
        weight_decay: float = 0.1,
        max_grad_norm: float | None = 1.0,
        **more: Any,
    ) -> None:
        super().__init__(params, lr, weights, weight_decay=weight_decay, max_grad_norm=max_grad_norm, **more)
