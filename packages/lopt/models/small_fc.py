"""Meta-weights of small_fc_lopt, MuLO and ELO: one network and the offsets of seven decays.

On disk: `model.safetensors` with PyLO's keys (network.input.*, network.linear_i.*, network.output.*) and `config.json`
with the widths, as PyLO's `MetaMLP` has it, plus `decay_offsets`. PyLO leaves the offsets out and hard-codes MuLO's, so
that every other checkpoint silently runs with the wrong decays; here they travel with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..features import BASE_DECAYS, Decays, effective_decay
from .mlp import MLP, random_mlp
from .pretrained import MetaWeights

# The offsets that MuLO's meta-training learned.
MULO_OFFSETS = {
    "momentum": (0.15216392, 0.14245212, 0.06812963),
    "rms": (0.01079706,),
    "adafactor": (0.18621896, -0.10864615, -0.06185547),
}
ZERO_OFFSETS = {"momentum": (0.0, 0.0, 0.0), "rms": (0.0,), "adafactor": (0.0, 0.0, 0.0)}
NAMED_OFFSETS = {"mulo": MULO_OFFSETS, "zero": ZERO_OFFSETS}


@dataclass(frozen=True)
class StepScales:
    """How far tensors step, of what the network says, and how that falls. Meta-weights want those that they were trained with.

    Attributes:
        hidden_lr_mult: MuLO's, see `lopt.optim.mulo`: hidden matrices and embeddings step hidden_lr_mult / fan_in as far.
            None: small_fc's steps, all tensors alike.
        vector_lr_mult: MuLO's, of vectors and scalars: biases, gains.
        lr_decay_steps: T of the factor (1 + t / T)^-1/2 after t steps. None: steps do not fall of themselves.
        by_signal: a tensor's steps are multiplied by `lopt.features.signal`, as Adam's are of themselves. The network's inputs
            are normalised, which hides how much of a gradient is noise.
    """

    hidden_lr_mult: float | None = None
    vector_lr_mult: float = 1.0
    lr_decay_steps: float | None = None
    by_signal: bool = False

    def __post_init__(self) -> None:
        for name in ("hidden_lr_mult", "vector_lr_mult", "lr_decay_steps"):
            if (x := getattr(self, name)) is not None and not x > 0:
                raise ValueError(f"{name}={x}: what steps are multiplied by is a positive number")
        if not isinstance(self.by_signal, bool):
            raise ValueError(f"by_signal={self.by_signal!r}: it is true or false")
        if self.hidden_lr_mult is None and self.vector_lr_mult != 1:
            raise ValueError(
                f"vector_lr_mult={self.vector_lr_mult} is MuLO's and wants a hidden_lr_mult; small_fc's is 1"
            )

    @classmethod
    def said_by(cls, config: Mapping[str, Any]) -> StepScales:
        """Those of a checkpoint's config or of a run's settings, which may say none."""
        return cls(**{f.name: config[f.name] for f in fields(cls) if f.name in config})

    @property
    def said(self) -> dict[str, float | bool]:
        """What `said_by` reads."""
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) != f.default}

    def of(self, dims: int, fan_in: int, hidden: bool) -> float:
        """Of one tensor, which has `dims` dimensions."""
        if self.hidden_lr_mult is None:
            return 1.0
        if dims < 2:
            return self.vector_lr_mult
        return self.hidden_lr_mult / fan_in if hidden else 1.0

    def after(self, t: Tensor) -> Tensor:
        """The factor after t (...) steps, of t's shape: 1 at the start."""
        if self.lr_decay_steps is None:
            return torch.ones_like(t, dtype=torch.float32)
        return (1 + t / self.lr_decay_steps).rsqrt()


UNSCALED = StepScales()  # small_fc's and the published MuLO's


@dataclass(frozen=True)
class SmallFCWeights(MetaWeights):
    """What small_fc_lopt, or MuLO, was meta-trained to be."""

    mlp: MLP  # (39, 32, 32, 2) as published; any hidden widths work
    momentum_offsets: Tensor  # (3,)
    rms_offsets: Tensor  # (1,)
    adafactor_offsets: Tensor  # (3,)
    scales: StepScales = UNSCALED  # those that these were trained with

    kind: ClassVar[str] = "small_fc"
    inputs: ClassVar[int] = 39
    outputs: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if (self.mlp.widths[0], self.mlp.widths[-1]) != (self.inputs, self.outputs):
            raise ValueError(f"a small_fc network maps 39 features to 2 outputs, this one has widths {self.mlp.widths}")

    def decays(self, clip_momentum: bool = True) -> Decays:
        """Effective decays; the JAX reference clips only rms and adafactor, PyLO all (published offsets need neither)."""
        momentum, rms, adafactor = BASE_DECAYS
        return Decays(
            effective_decay(momentum, self.momentum_offsets, clip_momentum),
            effective_decay(rms, self.rms_offsets)[0],
            effective_decay(adafactor, self.adafactor_offsets),
        )

    @property
    def example(self) -> Tensor:
        return self.mlp.weights[0]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> SmallFCWeights:
        return replace(
            self,
            mlp=self.mlp.to(device, dtype),
            momentum_offsets=self.momentum_offsets.to(device),
            rms_offsets=self.rms_offsets.to(device),
            adafactor_offsets=self.adafactor_offsets.to(device),
        )

    @classmethod
    def random(cls, seed: int, hidden: tuple[int, ...] = (32, 32)) -> SmallFCWeights:
        """Seeded random meta-weights: they take steps, they do not train well."""
        mlp = random_mlp((39, *hidden, 2), torch.Generator().manual_seed(seed))
        return SmallFCWeights(mlp, *_offset_tensors(ZERO_OFFSETS))

    def to_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, config) as written to disk."""
        names = _layer_names(len(self.mlp.weights))
        tensors = {f"{n}.weight": w for n, w in zip(names, self.mlp.weights, strict=True)}
        tensors |= {f"{n}.bias": b for n, b in zip(names, self.mlp.biases, strict=True)}
        config = {
            "kind": self.kind,
            "input_size": self.inputs,
            "hidden_size": self.mlp.widths[1],
            "hidden_layers": len(self.mlp.weights) - 2,
            "decay_offsets": {
                "momentum": self.momentum_offsets.tolist(),
                "rms": self.rms_offsets.tolist(),
                "adafactor": self.adafactor_offsets.tolist(),
            },
        }
        return tensors, config | self.scales.said

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> SmallFCWeights:
        """The inverse of `to_state`; also reads PyLO's checkpoints, if told their offsets."""
        layers = sum(key.endswith(".weight") for key in tensors)
        names = _layer_names(layers)
        wanted = {f"{n}.{part}" for n in names for part in ("weight", "bias")}
        if layers < 2 or wanted != set(tensors):
            raise ValueError(f"no small_fc network: its tensors are {sorted(tensors)[:6]}, wanted {sorted(wanted)[:6]}")
        mlp = MLP(tuple(tensors[f"{n}.weight"] for n in names), tuple(tensors[f"{n}.bias"] for n in names))
        return SmallFCWeights(mlp, *_offset_tensors(config.get("decay_offsets")), StepScales.said_by(config))


def _layer_names(layers: int) -> list[str]:
    return ["network.input", *(f"network.linear_{i}" for i in range(layers - 2)), "network.output"]


def _offset_tensors(offsets: str | Mapping[str, Any] | None) -> tuple[Tensor, Tensor, Tensor]:
    offsets = NAMED_OFFSETS.get(offsets) if isinstance(offsets, str) else offsets
    if offsets is None:
        raise ValueError("the checkpoint has no decay offsets: pass decay_offsets='mulo' (those of the published MuLO "
                         "network, which PyLO assumes), 'zero', or a dict of momentum, rms and adafactor")  # fmt: skip
    sizes = {"momentum": 3, "rms": 1, "adafactor": 3}
    tensors = tuple(torch.tensor(offsets[k], dtype=torch.float32).reshape(-1) for k in sizes)
    if tuple(len(x) for x in tensors) != tuple(sizes.values()):
        raise ValueError(f"decay offsets are 3 for momentum, 1 for rms, 3 for adafactor; got {dict(offsets)}")
    return tensors[0], tensors[1], tensors[2]
