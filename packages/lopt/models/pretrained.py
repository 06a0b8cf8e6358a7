"""Meta-weights from what a user writes, and back to disk and Hub.

    "random:0"                        seeded random numbers: they take steps, they are not trained
    "small_fc"                        a packaged name: what SmallFCLOpt takes if nothing is named
    "runs/7/weights"                  a folder: model.safetensors, or a flax theta.state, with config.json
    "theta.npz", "theta.state", "weights.pt", "model.safetensors"       one file
    "hub:user/name", "hub:user/name@revision"                           the Hugging Face Hub
    "hub:Pauljanson002/VeLO_RNN+Pauljanson002/VeLO_MLP"                 two of any kind above, laid together

Every tensor arrives bit for bit. A checkpoint of another kind or shape, or with NaN, is refused by name. Nothing goes to
the network unless the text begins with "hub:".
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from . import hub
from .layouts import canonical
from .readers import read_file

W = TypeVar("W", bound="MetaWeights")
CHOICES = ("a folder with model.safetensors and config.json, a .safetensors, .npz, .state or .pt file, 'hub:user/name', "
           "or 'random:SEED' (takes steps, is not trained)")  # fmt: skip
PACKAGED = Path(__file__).resolve().parents[1] / "weights"
STORED = ("model.safetensors", "theta.state", "theta.npz")  # what a folder may hold, the first found is read
# Checkpoints published without the offsets of their decays; PyLO has these in its constructors.
KNOWN_OFFSETS = {"btherien/mulo": "mulo", "DiamondXL/elo": "zero"}


class MetaWeights:
    """Base of the families of meta-weights: reading and writing. A family says what its tensors are called."""

    kind: ClassVar[str]

    @classmethod
    def random(cls: type[W], seed: int) -> W:
        raise NotImplementedError

    @classmethod
    def from_state(cls: type[W], tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> W:
        raise NotImplementedError

    @property
    def example(self) -> Tensor:
        """One of the tensors: all are on one device and of one type."""
        raise NotImplementedError

    def to_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls: type[W], spec: str | Path | W | None, **fallback: Any) -> W:
        """Read meta-weights (see the module). `fallback`: entries of the config for checkpoints that lack them."""
        if isinstance(spec, cls):
            return spec
        if not isinstance(spec, (str, Path)):
            there = packaged(cls.kind)
            named = f"one of the packaged names ({', '.join(there)}), " if there else ""
            got = "no meta-weights were named" if spec is None else f"{type(spec).__name__} is no {cls.__name__}"
            raise ValueError(f"weights of kind {cls.kind}: {got}; pass {named}{CHOICES}")
        if str(spec).startswith("random:"):
            return cls.random(_seed(str(spec)))
        tensors, config = gather(str(spec), cls.kind)
        config = {**{k: v for k, v in fallback.items() if v is not None}, **config}
        try:
            return cls.from_state(tensors, config)
        except ValueError as e:
            raise ValueError(f"{spec}: {e}") from None

    def save_pretrained(self, folder: str | Path, **card: Any) -> Path:
        """Write model.safetensors, config.json and README.md (the model card; `card` goes into it)."""
        from safetensors.torch import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors, config = self.to_state()
        write_atomic(folder / "model.safetensors", save({k: x.detach().cpu().contiguous() for k, x in tensors.items()}))
        write_atomic(folder / "config.json", json.dumps(config, indent=1).encode())
        write_atomic(folder / "README.md", hub.model_card(type(self).__name__, tensors, config, **card).encode())
        return folder

    def push_to_hub(self, repo: str, *, private: bool = False, token: str | None = None, **card: Any) -> str:
        """Upload what `save_pretrained` writes to the Hub, making the repository if need be; returns its address."""
        with tempfile.TemporaryDirectory(prefix="lopt-push-") as folder:
            return hub.upload(self.save_pretrained(folder, repo=repo, **card), repo, private, token)


def packaged(kind: str) -> list[str]:
    """Names of the packaged meta-weights of one kind."""
    configs = sorted(PACKAGED.glob("*/config.json"))
    return [c.parent.name for c in configs if json.loads(c.read_text()).get("kind") == kind]


def gather(spec: str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config of one or several places, joined by '+', by the names that this toolkit uses."""
    prefix, parts = ("hub:", spec[4:]) if spec.startswith("hub:") else ("", spec)
    tensors: dict[str, Tensor] = {}
    config: dict[str, Any] = {}
    for piece in [spec] if not prefix and Path(spec).exists() else parts.split("+"):
        found, its_config = _read_place(prefix + piece.strip().removeprefix("hub:"), kind)
        if its_config.get("kind", kind) != kind:
            raise ValueError(f"{piece} holds {its_config['kind']} meta-weights, not {kind}")
        tensors, config = tensors | found, config | its_config
    tensors, more = canonical(kind, tensors)
    config = {**config, **more}
    for name, x in tensors.items():
        if not torch.isfinite(x).all():
            raise ValueError(f"{spec}: tensor {name!r} has NaN or infinite entries")
    return tensors, config


def _read_place(place: str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if place.startswith("hub:"):
        repo = place.removeprefix("hub:").partition("@")[0]
        known = {"decay_offsets": KNOWN_OFFSETS[repo]} if repo in KNOWN_OFFSETS else {}
        tensors, config = _read_folder(hub.download(place.removeprefix("hub:")))
        return tensors, {**known, **config}
    path = Path(place)
    if path.is_file():
        return read_file(path)
    if not path.is_dir() and place in packaged(kind):
        path = PACKAGED / place
    if not path.is_dir():
        raise ValueError(f"no meta-weights at {place!r}; pass {CHOICES}")
    return _read_folder(path)


def _read_folder(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    stored = [folder / name for name in STORED if (folder / name).is_file()] or sorted(folder.glob("*.pt"))
    if not stored:
        raise ValueError(f"{folder} holds none of {', '.join(STORED)}")
    tensors, config = read_file(stored[0])
    file = folder / "config.json"
    return tensors, {**config, **(json.loads(file.read_text()) if file.is_file() else {})}


def _seed(spec: str) -> int:
    try:
        return int(spec.removeprefix("random:"))
    except ValueError:
        raise ValueError(f"{spec!r} has no seed: write 'random:0'") from None


def write_atomic(path: Path, data: bytes) -> None:
    """A reader sees the old file or the whole new one, never half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        Path(temporary).chmod(0o644)  # mkstemp makes files for their owner alone
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
