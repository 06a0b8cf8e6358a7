"""Meta-weights as they are packaged: the three files of `save_pretrained`, a model card, and a checksum.

    python -m lopt.metatrain.package SNAPSHOT FOLDER [SCALE]

SCALE multiplies its steps. The run's checkpoint, a floor above its snapshots, says whether they are MuLO's.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

from ..step.reference import scale_outputs
from .checkpoint import CHECKPOINT, load, scales, write
from .meta_weights import unflatten

SUMS = "SHA256SUMS"


def package(snapshot: Path, folder: Path, scale: float = 1.0) -> Path:
    """A snapshot of a meta-training as a folder that `weights=` takes; a model card that is there is kept."""
    weights = unflatten(load(snapshot), scales=scales(load(snapshot.parents[1] / CHECKPOINT)))
    weights = replace(weights, mlp=scale_outputs(weights.mlp, (scale, 1.0)))
    card = folder / "README.md"
    kept = card.read_bytes() if card.exists() else None
    weights.save_pretrained(folder)
    if kept is not None:
        write(card, kept)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    write(folder / SUMS, f"{digest}  model.safetensors\n".encode())
    return folder


if __name__ == "__main__":
    sys.stdout.write(f"{package(Path(sys.argv[1]), Path(sys.argv[2]), float((sys.argv[3:] or ['1'])[0]))}\n")
