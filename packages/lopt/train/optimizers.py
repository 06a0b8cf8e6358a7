"""Every optimizer that a training may name: the learned ones, and torch's own as baselines.

`build` returns a list, because Muon is for matrices and something else has to take the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..optim.mulo import mulo_groups
from ..registry import OPTIMIZERS, create

Optimizers = list[torch.optim.Optimizer]


def embedding_groups(model: nn.Module) -> list[dict[str, Any]]:
    """CELO2's groups: embeddings (and an output layer tied to one) apart, for AdamW."""
    found = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    inside = [p for p in model.parameters() if id(p) in found]
    rest = [p for p in model.parameters() if id(p) not in found]
    return [{"params": rest}, *([{"params": inside, "is_embedding": True}] if inside else [])]


def width_groups(model: nn.Module) -> list[dict[str, Any]]:
    """MuLO's groups; a model whose output layer cannot be seen names it in `outputs`."""
    return mulo_groups(model, outputs=getattr(model, "outputs", None))


def adamw(model: nn.Module, lr: float, **options: Any) -> Optimizers:
    return [torch.optim.AdamW(model.parameters(), lr=lr, **options)]


def adafactor(model: nn.Module, lr: float, **options: Any) -> Optimizers:
    return [torch.optim.Adafactor(model.parameters(), lr=lr, **options)]


def muon(model: nn.Module, lr: float, weight_decay: float = 0.0, **options: Any) -> Optimizers:
    """torch's Muon for hidden matrices, AdamW at the same rate for the rest; Muon's steps have AdamW's root mean square."""
    if not hasattr(torch.optim, "Muon"):
        raise ValueError(f"torch {torch.__version__} has no Muon: it came with 2.9")
    embedded = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in embedded]
    rest = [p for p in model.parameters() if p.ndim != 2 or id(p) in embedded]
    first = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw", **options)
    return [first, torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay)] if rest else [first]


BASELINES: dict[str, Callable[..., Optimizers]] = {"adamw": adamw, "adafactor": adafactor, "muon": muon}
GROUPS: dict[str, Callable[[nn.Module], Any]] = {
    "celo2": embedding_groups,
    "elo_celo2": embedding_groups,
    "mulo": width_groups,
}


def build(name: str, model: nn.Module, lr: float, steps: int, **options: Any) -> Optimizers:
    """The optimizer `name` over a model's parameters; options that are None are left at the optimizer's default.

    Raises:
        ValueError: an unknown name; meta-weights that are missing or of another kind.
    """
    given = {k: v for k, v in options.items() if v is not None}
    if name in BASELINES:
        return BASELINES[name](model, lr, **given)
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; allowed: {', '.join([*OPTIMIZERS, *BASELINES])}")
    groups = GROUPS[name](model) if name in GROUPS else model.parameters()
    if name == "velo":
        given["num_steps"] = steps
    return [create(name, groups, lr=lr, **given)]
