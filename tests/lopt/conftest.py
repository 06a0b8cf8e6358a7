"""Golden trajectories as a fixture (what is made of them is in golden_files.py); and lopt alone, which has no scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Generator
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """A test that turns out to draw a task on scikit-learn's digits is skipped where lopt is installed without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        pytest.skip("wants scikit-learn's digits")
