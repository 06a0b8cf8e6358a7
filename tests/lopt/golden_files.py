"""Golden trajectories: meta-weights and parameters made from a file, and the loop that replays it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lopt.models import MLP, SmallFCWeights, VeLOWeights
from lopt.models.layouts import canonical
from lopt.models.small_fc import MULO_OFFSETS as MULO_OFFSETS

STEPS = 20
Golden = dict[str, Tensor]


def names(g: Golden) -> list[str]:
    return sorted(key.removeprefix("p0/") for key in g if key.startswith("p0/"))


def jax_small_fc(g: Golden) -> SmallFCWeights:
    """The meta-weights of an adafac_jax or mulo_jax file; JAX stores (in, out)."""
    mlp = MLP(tuple(g[f"theta/nn/w{i}"].T.contiguous() for i in range(3)), tuple(g[f"theta/nn/b{i}"] for i in range(3)))
    return SmallFCWeights(mlp, g["theta/momentum_decays"], g["theta/rms_decays"], g["theta/adafactor_decays"])


def theta(g: Golden) -> Golden:
    """The meta-weights of a PyLO file, by their keys there."""
    return {key.removeprefix("theta/"): x for key, x in g.items() if key.startswith("theta/")}


def jax_velo(g: Golden) -> VeLOWeights:
    """The meta-weights of a velo_jax file, through the reader of such trees."""
    return VeLOWeights.from_state(*canonical("velo", theta(g)))


def parameters(g: Golden, which: Iterable[str], dtype: torch.dtype = torch.float32) -> dict[str, torch.nn.Parameter]:
    return {n: torch.nn.Parameter(g[f"p0/{n}"].clone().to(dtype)) for n in which}


def largest_errors(
    optimizer: torch.optim.Optimizer, params: dict[str, torch.nn.Parameter], g: Golden, want: Golden | None = None
) -> dict[str, float]:
    """Replay 20 steps of recorded gradients (and losses); per tensor, the largest distance from the recorded parameters."""
    want = g if want is None else want
    worst = dict.fromkeys(params, 0.0)
    for t in range(STEPS):
        for n, p in params.items():
            p.grad = g[f"g/{t}/{n}"].to(p.dtype)
        optimizer.step(loss=g["loss"][t]) if "loss" in g else optimizer.step()  # type: ignore[call-arg]
        for n, p in params.items():
            worst[n] = max(worst[n], (p.detach() - want[f"p/{t}/{n}"]).abs().max().item())
    return worst
