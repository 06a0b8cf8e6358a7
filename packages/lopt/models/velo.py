"""Meta-weights of VeLO: a recurrent network per tensor that mixes a bank of tiny networks per element.

Keys and shapes are those of PyLO's two checkpoints (VeLO_RNN and VeLO_MLP), which share no key, so one file holds both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .mlp import MLP
from .pretrained import MetaWeights

INPUTS, FEATURES, OUTPUTS = 30, 30, 3


class Linear(NamedTuple):
    """x W^T + b on rows of x."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight.T)

    @staticmethod
    def random(fan_in: int, fan_out: int, generator: torch.Generator) -> Linear:
        return Linear(torch.randn(fan_out, fan_in, generator=generator) / math.sqrt(fan_in), torch.zeros(fan_out))


@dataclass(frozen=True)
class VeLOWeights(MetaWeights):
    """H: LSTM width (512 as published). B: networks in the bank (256)."""

    unused: Linear  # (H, 30): `mix_layer1`, dead code in the reference, kept so that checkpoints survive a round trip
    pooled: Linear  # (H, 30): its maximum over all tensors goes to every tensor
    direct: Linear  # (H, 30)
    lstm: Linear  # (4 H, 2 H): gates i, g, f, o of [z, h]
    controls: Linear  # (B, H)
    step_size: Linear  # (1, H)
    init_h: Tensor  # (1, H)
    init_c: Tensor  # (1, H)
    bank_weights: tuple[Tensor, ...]  # (B, out, in) each: 30 -> 4 -> 4 -> 3 as published
    bank_biases: tuple[Tensor, ...]  # (B, out) each

    kind: ClassVar[str] = "velo"

    def __post_init__(self) -> None:
        h, b = self.init_h.shape[1], len(self.controls.bias)
        want = {
            "pooled": (h, INPUTS),
            "direct": (h, INPUTS),
            "lstm": (4 * h, 2 * h),
            "controls": (b, h),
            "step_size": (1, h),
        }
        for name, shape in want.items():
            if tuple(getattr(self, name).weight.shape) != shape:
                raise ValueError(f"VeLO's {name} is {tuple(getattr(self, name).weight.shape)}, should be {shape}")
        if any(len(x) != b for x in (*self.bank_weights, *self.bank_biases)):
            raise ValueError(f"VeLO's bank must hold {b} networks, as many as there are controls")
        self.network(0)

    def network(self, i: int) -> MLP:
        """One network of the bank; ValueError if its layers do not fit."""
        return MLP(tuple(w[i] for w in self.bank_weights), tuple(x[i] for x in self.bank_biases))

    def mix(self, controls: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """W = 100 / B sum_i controls_i Bank_i for every tensor at once: (T, B) -> weights (T, out, in), biases (T, out)."""
        bank = [*self.bank_weights, *self.bank_biases]
        flat = torch.cat([x.reshape(len(x), -1) for x in bank], 1)  # (B, 155 and 3 unused)
        mixed = (controls * (100.0 / controls.shape[1])) @ flat
        parts = mixed.split([x[0].numel() for x in bank], 1)
        shaped = [x.reshape(-1, *b.shape[1:]) for x, b in zip(parts, bank, strict=True)]
        return shaped[: len(self.bank_weights)], shaped[len(self.bank_weights) :]

    @property
    def example(self) -> Tensor:
        return self.init_h

    def to(self, device: torch.device | str, dtype: torch.dtype) -> VeLOWeights:
        moved = {k: _to(x, device, dtype) for k, x in self.__dict__.items()}
        return VeLOWeights(**moved)

    @classmethod
    def random(cls, seed: int, width: int = 512, bank: int = 256, hidden: tuple[int, ...] = (4, 4)) -> VeLOWeights:
        """Seeded random meta-weights: they take steps, they do not train well."""
        g = torch.Generator().manual_seed(seed)
        linear = [Linear.random(INPUTS, width, g) for _ in range(3)]
        lstm, controls = Linear.random(2 * width, 4 * width, g), Linear.random(width, bank, g)
        widths = (FEATURES, *hidden, OUTPUTS)
        weights = [torch.randn(bank, o, i, generator=g) / math.sqrt(i * bank) for i, o in pairwise(widths)]
        biases = [torch.randn(bank, o, generator=g) * 0.01 for o in widths[1:]]
        step_size = Linear(torch.randn(1, width, generator=g) / math.sqrt(width), torch.ones(1))
        init = torch.randn(2, 1, width, generator=g) * 0.1
        return VeLOWeights(linear[0], linear[1], linear[2], lstm, controls, step_size, init[0], init[1], tuple(weights),
                           tuple(biases))  # fmt: skip

    def to_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, config) as written to disk, PyLO's keys."""
        tensors: dict[str, Tensor] = {}
        for key, name in LINEARS.items():
            tensors |= {f"{key}.weight": getattr(self, name).weight, f"{key}.bias": getattr(self, name).bias}
        tensors |= {"lstm_init_state.0": self.init_h, "lstm_init_state.1": self.init_c}
        names = _bank_names(len(self.bank_weights))
        tensors |= {w: x for (w, _), x in zip(names, self.bank_weights, strict=True)}
        tensors |= {b: x for (_, b), x in zip(names, self.bank_biases, strict=True)}
        config = {"kind": self.kind, "input_size": FEATURES, "lstm_hidden_size": self.init_h.shape[1],
                  "param_inits": len(self.controls.bias), "hidden_size": self.bank_weights[0].shape[1],
                  "hidden_layers": len(self.bank_weights) - 2, "output_size": OUTPUTS}  # fmt: skip
        return tensors, config

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> VeLOWeights:
        """The inverse of `to_state`; also reads PyLO's two checkpoints laid together."""
        names = _bank_names(2 + sum(k.startswith("hidden_weights_.") for k in tensors))
        wanted = [f"{k}.{part}" for k in LINEARS for part in ("weight", "bias")]
        wanted += ["lstm_init_state.0", "lstm_init_state.1", *(n for pair in names for n in pair)]
        missing = [k for k in wanted if k not in tensors]
        if missing:
            raise ValueError(f"no VeLO network: it lacks {', '.join(missing[:4])} (PyLO's RNN and MLP are two checkpoints: "
                             "give both, joined by '+')")  # fmt: skip
        fields: dict[str, Any] = {
            name: Linear(tensors[f"{k}.weight"], tensors[f"{k}.bias"]) for k, name in LINEARS.items()
        }
        fields |= {"init_h": tensors["lstm_init_state.0"], "init_c": tensors["lstm_init_state.1"]}
        fields |= {
            "bank_weights": tuple(tensors[w] for w, _ in names),
            "bank_biases": tuple(tensors[b] for _, b in names),
        }
        return VeLOWeights(**fields)


LINEARS = {"mix_layer1": "unused", "mix_layer2": "pooled", "final_mix_layer": "direct", "lstm.linear": "lstm",
           "rnn_to_controls": "controls", "step_size": "step_size"}  # fmt: skip


def _bank_names(layers: int) -> list[tuple[str, str]]:
    hidden = [(f"hidden_weights_.{i}", f"hidden_bias_.{i}") for i in range(layers - 2)]
    return [("input_weights_", "input_bias_"), *hidden, ("output_weights_", "output_bias_")]


def _to(x: Any, device: torch.device | str, dtype: torch.dtype) -> Any:
    if isinstance(x, Linear):
        return Linear(x.weight.to(device, dtype), x.bias.to(device, dtype))
    return tuple(y.to(device, dtype) for y in x) if isinstance(x, tuple) else x.to(device, dtype)
