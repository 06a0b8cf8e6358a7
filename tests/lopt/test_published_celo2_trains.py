"""With its published meta-weights CELO2 trains: a small transformer on made text, a small convnet on digits.

How far, beside AdamW at its default and best-of-eight rates, is in benchmarks/celo2_training.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import celo2_training

    yield celo2_training
    sys.modules.pop("celo2_training")


@pytest.mark.parametrize(("task", "steps", "gain"), [("transformer", 80, 0.9), ("convnet", 60, 0.7)])
def test_the_loss_falls(script, shared_dir, task, steps, gain):
    if task == "convnet":
        pytest.importorskip("sklearn")
    torch.manual_seed(0)
    losses = script.train(task, lambda m: script.celo2(m, str(shared_dir / "weights" / "celo2_weights.pt")), steps)
    assert sum(losses[-10:]) / 10 < gain * losses[0]
