"""The command as a user starts it: a process of its own, in some other folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metabench import Recording, Space, save

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def metaopt(tmp_path: Path) -> Run:
    """Run `metaopt ARGUMENTS` in an empty folder."""

    def run(*arguments: str, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error::ResourceWarning", "-m", "metaopt.command", *arguments]
        env = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture
def recording_file(tmp_path: Path) -> Path:
    """A recording of 60 configurations as a file of its own."""
    space = Space.from_dict({"block": [16, 32, 64, 128], "tile": [1, 2, 4, 8, 16], "unroll": [0, 1, 2]})
    values = 1 + np.random.default_rng(0).lognormal(0, 1, len(space))
    recording = Recording("toy", "bench", space, values, np.ones(len(space)), np.full(len(space), "correct"))
    return save(recording, tmp_path / "toy" / "bench.json.gz")
