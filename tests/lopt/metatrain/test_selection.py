"""Snapshots are chosen by what they do on validation tasks, MuLO's as MuLO, and every task counts alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lopt.metatrain import select
from lopt.metatrain.lane import Unroll
from lopt.metatrain.meta_weights import blended
from lopt.metatrain.package import package
from lopt.metatrain.tasks import MLPTask
from lopt.metatrain.train import MetaTraining, Settings
from lopt.models import SmallFCWeights
from lopt.models.small_fc import StepScales

pytest.importorskip("sklearn", reason="some of these tasks are on scikit-learn's digits")

TASK = MLPTask(inputs=6, width=32, depth=2, outputs=3, batch=8)


def run(folder: Path, hidden_lr_mult: float | None) -> Path:
    """A meta-training of two outer steps, with a snapshot of each."""
    unroll = Unroll(truncation=2, shortest=2, longest=4, elements=500, hidden_lr_mult=hidden_lr_mult,
                    vector_lr_mult=0.5 if hidden_lr_mult else 1.0)  # fmt: skip
    settings = Settings(tasks="mlp_family", steps=2, lanes=1, lanes_per_step=1, first_longest=4, save_every=1,
                        snapshot_every=1, unroll=unroll)  # fmt: skip
    MetaTraining(settings, folder).run()
    return folder


def test_snapshots_run_with_the_steps_they_were_trained_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run(tmp_path / "plain", None), run(tmp_path / "wide", 4.0)]
    monkeypatch.setattr(select, "frozen", lambda split: [TASK])
    monkeypatch.setattr(select, "HORIZONS", {"validation": (4, 8), "wide": (4,)})
    found = select.select(runs)
    assert [x["standing"] for _, x in found] == sorted(x["standing"] for _, x in found)
    assert {file.parents[1].name for file, _ in found} == {"plain", "wide"} and len(found) == 4
    by_run = {file.parents[1].name: x["validation"] for file, x in found if file.stem == "0000001"}
    assert by_run["plain"] != by_run["wide"]  # nearly the same meta-weights, hidden steps an eighth as long
    marked = SmallFCWeights.from_pretrained(package(found[0][0], tmp_path / "packaged"))
    assert marked.scales == {"plain": StepScales(), "wide": StepScales(4.0, 0.5)}[found[0][0].parents[1].name]


def test_every_task_counts_alike() -> None:
    # The third gains six on one task and is the worst on the other; by the mean it would be chosen.
    scores = torch.tensor([[-0.30, -3.0], [-0.20, -3.1], [-0.10, -9.0]])
    assert (scores.mean(1).argmin(), select.standing(scores).argmin()) == (2, 0)
    assert torch.allclose(select.standing(scores * torch.tensor([100.0, 1.0])), select.standing(scores), atol=1e-3)
    assert select.standing(scores[:1]).tolist() == [0.0]


def test_a_blend_is_part_of_the_way_from_the_start() -> None:
    start, end = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -2.0])
    found = [blended(end, start, share).tolist() for share in (0.0, 0.75, 1.0)]
    assert found == [[1.0, 2.0], [2.5, -1.0], [3.0, -2.0]]
