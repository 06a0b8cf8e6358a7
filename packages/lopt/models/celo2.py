"""Meta-weights of CELO2 and ELO-CELO2: one network 30 -> 8 -> 8 -> 3, 347 numbers as published.

On disk with the keys of PyLO's `CELO2MLP`: the first layer in 14 pieces w0.i (d_i, h), one per kind of feature, then
dense_w.i (in, out), all to be applied as x @ w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from .mlp import MLP, random_mlp
from .pretrained import MetaWeights

FEATURE_DIMS = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)


@dataclass(frozen=True)
class CELO2Weights(MetaWeights):
    """What CELO2 was meta-trained to be; its decays are fixed."""

    mlp: MLP  # (30, 8, 8, 3) as published; the third output is not used

    kind: ClassVar[str] = "celo2"

    def __post_init__(self) -> None:
        if self.mlp.widths[0] != 30 or self.mlp.widths[-1] not in (2, 3):
            raise ValueError(f"a CELO2 network maps 30 features to 3 outputs, this one has widths {self.mlp.widths}")

    @property
    def example(self) -> Tensor:
        return self.mlp.weights[0]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> CELO2Weights:
        return CELO2Weights(self.mlp.to(device, dtype))

    @classmethod
    def random(cls, seed: int, hidden: tuple[int, ...] = (8, 8)) -> CELO2Weights:
        """Seeded random meta-weights: they take steps, they do not train well."""
        return CELO2Weights(random_mlp((30, *hidden, 3), torch.Generator().manual_seed(seed)))

    def to_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, config) as written to disk."""
        first, *dense = self.mlp.weights
        pieces = first.T.split(FEATURE_DIMS)
        tensors = {f"w0.{i}": x for i, x in enumerate(pieces)} | {"b0": self.mlp.biases[0]}
        tensors |= {f"dense_w.{i}": w.T for i, w in enumerate(dense)}
        tensors |= {f"dense_b.{i}": b for i, b in enumerate(self.mlp.biases[1:])}
        config = {"kind": self.kind, "feature_dims": list(FEATURE_DIMS), "hidden_size": self.mlp.widths[1],
                  "hidden_layers": len(dense), "output_size": self.mlp.widths[-1], "activation": "relu"}  # fmt: skip
        return tensors, config

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> CELO2Weights:
        """The inverse of `to_state`."""
        layers = sum(k.startswith("dense_w.") for k in tensors)
        wanted = [f"w0.{i}" for i in range(len(FEATURE_DIMS))] + ["b0"]
        wanted += [f"dense_{x}.{i}" for x in "wb" for i in range(max(layers, 1))]
        missing = [k for k in wanted if k not in tensors]
        if missing:
            raise ValueError(f"no CELO2 network: it lacks {', '.join(missing[:4])}")
        if config.get("activation", "relu") != "relu":
            raise ValueError(f"a CELO2 network has relu activations, this one {config['activation']!r}")
        first = torch.cat([tensors[f"w0.{i}"] for i in range(len(FEATURE_DIMS))]).T.contiguous()
        weights = [first, *(tensors[f"dense_w.{i}"].T.contiguous() for i in range(layers))]
        return CELO2Weights(MLP(tuple(weights), (tensors["b0"], *(tensors[f"dense_b.{i}"] for i in range(layers)))))
