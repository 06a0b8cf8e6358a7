"""Where meta-weights come from: `random:SEED` or a folder with model.safetensors and config.json."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

W = TypeVar("W", bound="MetaWeights")
CHOICES = "a folder with model.safetensors and config.json, or 'random:SEED' (takes steps, is not trained)"


class MetaWeights(Protocol):
    """What a family of meta-weights can do; one class per family implements it."""

    kind: str

    @staticmethod
    def random(seed: int) -> Any: ...
    @staticmethod
    def from_state(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Any: ...
    def to_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...


def load(cls: type[W], spec: str | Path | W | None, decay_offsets: Any = None) -> W:
    """Meta-weights from what a user writes: an object of the family (returned as it is), a folder, or 'random:SEED'."""
    if isinstance(spec, cls):
        return spec
    if spec is None:
        raise ValueError(f"no trained {cls.kind} meta-weights are packaged: pass weights={CHOICES}")
    if isinstance(spec, str) and spec.startswith("random:"):
        return cls.random(_seed(spec))
    folder = Path(spec) if isinstance(spec, (str, Path)) else None
    if folder is None or not (folder / "model.safetensors").is_file():
        raise ValueError(f"no meta-weights at {spec!r}: pass {CHOICES}")
    return load_folder(cls, folder, decay_offsets)


def _seed(spec: str) -> int:
    try:
        return int(spec.removeprefix("random:"))
    except ValueError:
        raise ValueError(f"{spec!r} has no seed: write 'random:0'") from None


def load_folder(cls: type[W], folder: Path, decay_offsets: Any = None) -> W:
    """Read model.safetensors + config.json; a checkpoint of another kind, or with NaN, is refused by name."""
    from safetensors.torch import load_file

    config_file = folder / "config.json"
    config = json.loads(config_file.read_text()) if config_file.is_file() else {}
    if config.get("kind", cls.kind) != cls.kind:
        raise ValueError(f"{folder} holds {config['kind']} meta-weights, not {cls.kind}")
    tensors = load_file(folder / "model.safetensors")
    check_finite(tensors, str(folder))
    if decay_offsets is not None:
        config = {**config, "decay_offsets": decay_offsets}
    try:
        return cls.from_state(tensors, config)
    except ValueError as e:
        raise ValueError(f"{folder}: {e}") from None


def check_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    for name, x in tensors.items():
        if not torch.isfinite(x).all():
            raise ValueError(f"{where}: tensor {name!r} has NaN or infinite entries")


def save_folder(weights: MetaWeights, folder: str | Path) -> Path:
    """Write model.safetensors and config.json, each to a temporary file that is then moved."""
    from safetensors.torch import save

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors, config = weights.to_state()
    contiguous = {k: x.detach().cpu().contiguous() for k, x in tensors.items()}
    write_atomic(folder / "model.safetensors", save(contiguous))
    write_atomic(folder / "config.json", json.dumps(config, indent=1).encode())
    return folder


def write_atomic(path: Path, data: bytes) -> None:
    """A reader sees the old file or the whole new one, never half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
