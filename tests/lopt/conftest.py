"""Golden trajectories as a fixture; what is made of them is in golden_files.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_files import Golden

# One thread: with more, small tensors on a busy machine spend their time waiting for each other.
torch.set_num_threads(1)


@pytest.fixture
def golden(shared_dir: Path) -> Callable[[str], Golden]:
    """golden("adafac_jax_zero_decays") -> every array of that file."""

    def read(name: str) -> Golden:
        with np.load(shared_dir / "golden" / f"{name}.npz") as file:
            return {key: torch.from_numpy(file[key].copy()) for key in file.files}

    return read
