"""Files of meta-weights as a flat dict of tensors, names joined by "/" where the file has a tree; nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .msgpack import unpack


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, config) of one file; the config is what a .pt says about decays, else empty. ValueError if unreadable."""
    readers = {
        ".safetensors": _safetensors,
        ".npz": _npz,
        ".state": _msgpack,
        ".msgpack": _msgpack,
        ".pt": _pt,
        ".pth": _pt,
    }
    if path.suffix not in readers:
        raise ValueError(f"{path}: meta-weights are read from {', '.join(readers)} files")
    try:
        return readers[path.suffix](path)
    except (ValueError, KeyError, TypeError, EOFError, RuntimeError, OSError) as e:
        raise ValueError(f"{path} is no readable {path.suffix} file: {e}") from None
    except Exception as e:  # safetensors, pickle and zipfile raise their own kinds
        raise ValueError(f"{path} is no readable {path.suffix} file: {type(e).__name__}: {e}") from None


def flatten(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """A nested mapping of arrays as {"a/b/c": tensor}; anything that is no array is left out."""
    if isinstance(tree, Mapping):
        flat: dict[str, Tensor] = {}
        for key, value in tree.items():
            flat |= flatten(value, f"{prefix}/{key}" if prefix else str(key))
        return flat
    if isinstance(tree, np.ndarray):
        return {prefix: torch.from_numpy(np.array(tree))}  # a copy: writable, and independent of a memory map
    return {prefix: tree.detach()} if isinstance(tree, Tensor) else {}


def _safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors.torch import load_file

    return load_file(path), {}


def _npz(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        return flatten({key: file[key] for key in file.files}), {}


def _msgpack(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return flatten(unpack(path.read_bytes())), {}


def _pt(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """torch.save'd tensors, with weights_only=True; PyLO's {"decays": ..., "state_dict": ...} or the bare state dict."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise ValueError(f"it holds a {type(content).__name__}, not a dict of tensors")
    if "state_dict" not in content:
        return flatten(content), {}
    decays = content.get("decays")
    names = {"momentum": "momentum_decays", "rms": "rms_decays", "adafactor": "adafactor_decays"}
    offsets = {k: torch.as_tensor(decays[v]).reshape(-1).tolist() for k, v in names.items()} if decays else None
    return flatten(content["state_dict"]), {"decay_offsets": offsets} if offsets else {}
