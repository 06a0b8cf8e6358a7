"""MuLO: small_fc_lopt in the maximal update parametrisation: hidden matrices step 1 / fan_in as far.

Therien et al., arXiv 2406.00153; MuAdafacMLPLOpt of bentherien/mu_learned_optimization. Per tensor

    p <- p - lr s step,    s = hidden_lr_mult / fan_in for hidden weight matrices, 1 for everything else,

and the output layer is multiplied by output_mult / fan_in in the forward pass (`MuReadout`). An ordinary output layer is not,
so its steps must shrink instead: s = hidden_lr_mult / fan_in there too (Yang et al., Tensor Programs V, the equivalent forms
of Table 8), and in an output layer that is tied to an embedding. Embeddings by themselves have s = 1 in this parametrisation,
which begins them with elements of order one. Ordinary models begin them small (GPT-2: 0.02), and steps of s = 1 then let a table
of positions, whose gradient is mostly noise, outgrow what it is added to; so meta-weights that say their hidden_lr_mult, the
packaged ones, are trained with hidden_lr_mult / width in embeddings as well. They also say a vector_lr_mult, 1/8: at s = 1 biases
and LayerNorm's gains step as far as AdamW's at 3e-3, four times as far as a hidden matrix of width 64, and a transformer waits.
And they say how steps follow time and noise, see `lopt.models.small_fc.StepScales`.

The trap. s = 1 / fan_in means base width ONE: that is what the published weights were meta-trained with. mup computes
width / base width instead; its examples get base width one through `override_base_dim=1`, which exists in a fork only. With
ordinary base shapes, of width 128 say, hidden steps are 128 times those of meta-training, and nothing complains. So fan_in is
computed here, without mup; a model that was prepared with mup is still understood, on request (`role="infshape"`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..models.small_fc import SmallFCWeights
from .small_fc import SmallFCLOpt

ROLES = ("hidden", "embedding", "other", "infshape")


class MuLO(SmallFCLOpt):
    """As `SmallFCLOpt`, with steps scaled by width.

    role: "hidden": tensors of two and more dimensions are hidden weights; "embedding": s = 1, unless the meta-weights were
        trained with another rule (see the module); "other": s = 1 (the input layer, a `MuReadout`); "infshape": as mup's
        `set_base_shapes` says, s = 1 / width_mult where two dimensions are infinite. Per group: `mulo_groups(model)` makes
        the groups. Vectors and scalars have s = 1, or the vector_lr_mult that the meta-weights say.
    hidden_lr_mult: numerator of s; None: the one that the meta-weights say they were trained with, 1 where they say none
        (the published ones). Weight decay uses the scaled learning rate too.

    The reference passes gradients through nan_to_num: nonfinite="propagate" does that.
    """

    group_options = ("weights", "layout", "role")
    replaces_nan = True
    packaged = "mulo"
    scales_hidden = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        weights: str | Path | SmallFCWeights | None = None,
        *,
        role: str = "hidden",
        hidden_lr_mult: float | None = None,
        decay_offsets: Any = "mulo",
        **more: Any,
    ) -> None:
        defaults = {"hidden_lr_mult": hidden_lr_mult}
        super().__init__(params, lr, weights, decay_offsets=decay_offsets, more_defaults=defaults,
                         more_group_options={"role": role}, **more)  # fmt: skip

    def prepare_group(self, values: dict[str, Any]) -> dict[str, Any]:
        if values["role"] not in ROLES:
            raise ValueError(f"role={values['role']!r}: choose one of {', '.join(ROLES)}")
        return super().prepare_group(values)

    def step_scale(self, p: Tensor, group: Mapping[str, Any], values: Mapping[str, Any]) -> float:
        if values["role"] == "infshape":
            return 1.0 / mup_width_mult(p)
        said = values["weights"].scales
        hidden = values["role"] == "hidden" or (values["role"] == "embedding" and said.hidden_lr_mult is not None)
        mult = group["hidden_lr_mult"] or said.hidden_lr_mult or 1.0
        return replace(said, hidden_lr_mult=float(mult)).of(p.ndim, fan_in(p.shape, values["layout"]), hidden)


def fan_in(shape: tuple[int, ...], layout: str = "torch") -> int:
    """Inputs of one output, 1 for an empty tensor: torch weights are (out, in, *spatial), flax kernels (*spatial, in, out)."""
    return max(1, math.prod(shape[1:]) if layout == "torch" else math.prod(shape[:-1]))


def mup_width_mult(p: Tensor) -> float:
    """width / base width of a parameter prepared with mup, where two of its dimensions grow; else 1."""
    if not hasattr(p, "infshape"):
        raise ValueError(
            "role='infshape' is for models prepared with mup's set_base_shapes: a parameter has no infshape"
        )
    if p.infshape.ninf() > 2:
        raise ValueError(
            f"a parameter of shape {tuple(p.shape)} grows in more than two dimensions: that has no muP rule"
        )
    return float(p.infshape.width_mult()) if p.infshape.ninf() == 2 else 1.0


def mulo_groups(
    model: nn.Module, inputs: Collection[str] | None = None, outputs: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Param groups: hidden matrices, embeddings if there are any, and all else.

    inputs, outputs: names of modules that read data and that write predictions. By default, in the order in which they were
    registered: the first module with a weight matrix, unless it is an embedding, whose model reads tokens with it and has no
    other input layer; and the last one that is no embedding. Outputs count as hidden
    unless they are a `MuReadout`; so does an embedding that is an output too, which must be named if the model uses its
    weight without a module.
    """
    modules = {n: m for n, m in model.named_modules() if getattr(m, "weight", None) is not None and m.weight.ndim >= 2}
    embeddings = [n for n, m in modules.items() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    others = [n for n in modules if n not in embeddings]
    unknown = [n for n in (*(inputs or ()), *(outputs or ())) if n not in modules]
    if unknown:
        raise ValueError(f"no weight matrix in {', '.join(unknown)}; the model has {', '.join(modules)}")
    readers = [n for n in [*modules][:1] if n not in embeddings] if inputs is None else inputs
    writers = others[-1:] if outputs is None else outputs
    plain = {id(modules[n].weight) for n in writers if not isinstance(modules[n], MuReadout)}
    ends = {id(modules[n].weight) for n in (*readers, *writers)} - plain
    tables = {id(modules[n].weight) for n in embeddings} - plain - ends
    # A bare parameter of several dimensions (a table of positions, a class token) belongs to all else.
    hidden = {id(p) for n, p in model.named_parameters() if p.ndim >= 2 and n.endswith("weight")} - ends - tables
    groups: dict[str, list[nn.Parameter]] = {"hidden": [], "embedding": [], "other": []}
    for p in model.parameters():
        groups["hidden" if id(p) in hidden else "embedding" if id(p) in tables else "other"].append(p)
    return [{"params": found, "role": role} for role, found in groups.items() if found or role != "embedding"]


class MuReadout(nn.Linear):
    """An output layer in this parametrisation: x -> W (x output_mult / fan_in) + b."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, output_mult: float = 1.0) -> None:
        super().__init__(in_features, out_features, bias)
        self.output_mult = output_mult

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * (self.output_mult / self.in_features))
