"""A meta-training that was killed and taken up equals the unbroken one bit for bit; so do two processes and their sum."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from killing import Killed, killed_at
from torch import distributed as dist

from lopt.metatrain import checkpoint
from lopt.metatrain.lane import Unroll
from lopt.metatrain.outer import Outer
from lopt.metatrain.train import MetaTraining, Settings

pytest.importorskip("sklearn", reason="some of these tasks are on scikit-learn's digits")

UNROLL = Unroll(method="pes", truncation=3, shortest=6, longest=30, elements=2000, least_pairs=2, most_pairs=3)
SETTINGS = Settings(tasks="mixed", steps=10, seed=1, lanes=4, lanes_per_step=2, log_every=2, save_every=2, snapshot_every=4,
                    unroll=UNROLL, outer=Outer(lr=1e-2))  # fmt: skip


@pytest.mark.parametrize("method", ["es", "pes", "nres", "full"])
def test_taken_up_after_a_crash_it_equals_the_unbroken_run(tmp_path: Path, method: str) -> None:
    settings = dataclasses.replace(SETTINGS, unroll=dataclasses.replace(UNROLL, method=method), alike=method == "full",
                                   outer=Outer(lr=1e-2, average=0.8 * (method == "full")))  # fmt: skip
    whole = MetaTraining(settings, tmp_path / "whole").run()
    with pytest.raises(Killed):
        MetaTraining(settings, tmp_path / "broken").run(killed_at(6))  # the last checkpoint is of step 4
    broken = MetaTraining(settings, tmp_path / "broken").resume()
    assert broken.step == 4
    assert torch.equal(broken.run(), whole)
    ends = [checkpoint.load(tmp_path / name / checkpoint.CHECKPOINT) for name in ("whole", "broken")]
    for a, b in zip(*(end["parts"][0]["lanes"] for end in ends), strict=True):
        assert a["task"] == b["task"] and a["age"] == b["age"]
        assert torch.equal(a["rows"], b["rows"]) and torch.equal(a["generator"], b["generator"])


def test_killed_by_a_signal_it_leaves_a_checkpoint_that_works(tmp_path: Path) -> None:
    code = ("import sys; from test_resumed_runs import *\n"
            "MetaTraining(dataclasses.replace(SETTINGS, steps=10_000), sys.argv[1]).run()")  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))}
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
    file, end = tmp_path / checkpoint.CHECKPOINT, time.monotonic() + 120
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    training = MetaTraining(dataclasses.replace(SETTINGS, steps=10_000), tmp_path).resume()
    assert training.step % SETTINGS.save_every == 0 and training.step > 0
    assert torch.isfinite(training.outer.theta).all()


def test_a_run_does_learn(tmp_path: Path) -> None:
    moved = MetaTraining(SETTINGS, tmp_path)
    start = moved.outer.theta.clone()
    assert (moved.run() - start).abs().max() > 1e-3
    rows = (tmp_path / checkpoint.CURVE).read_text().splitlines()
    assert len(rows) == 1 + SETTINGS.steps // SETTINGS.log_every
    assert sorted(p.name for p in (tmp_path / checkpoint.SNAPSHOTS).iterdir()) == [
        "0000004.pt",
        "0000008.pt",
        "0000010.pt",
    ]


def test_other_settings_or_no_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no checkpoint"):
        MetaTraining(SETTINGS, tmp_path).resume()
    MetaTraining(dataclasses.replace(SETTINGS, steps=2), tmp_path).run()
    with pytest.raises(ValueError, match=r"other settings \(seed\)"):
        MetaTraining(dataclasses.replace(SETTINGS, steps=2, seed=2), tmp_path).resume()
    (tmp_path / checkpoint.CHECKPOINT).write_bytes(b"half of a file")
    with pytest.raises(ValueError, match="is no checkpoint, or a damaged one"):
        MetaTraining(SETTINGS, tmp_path).resume()


def one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        settings = dataclasses.replace(SETTINGS, steps=4)
        training = MetaTraining(settings, Path(folder) / "run")
        gradients = []
        averaged = training._averaged
        training._averaged = lambda x: gradients.append(x.clone()) or averaged(x)  # type: ignore[method-assign]
        theta = training.run()
        torch.save({"theta": theta, "own": gradients, "tasks": [lane.task.as_json() for lane in training.lanes]},
                   f"{folder}/rank{rank}.pt")  # fmt: skip
        again = MetaTraining(settings, Path(folder) / "run").resume()
        assert torch.equal(again.outer.theta, theta)
        assert [lane.task for lane in again.lanes] == [lane.task for lane in training.lanes]
    finally:
        dist.destroy_process_group()


def test_two_processes_average_what_each_finds(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(one_of_two, (str(tmp_path),), nprocs=2)
    a, b = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert torch.equal(a["theta"], b["theta"])
    assert a["tasks"] != b["tasks"], "each has particles of its own"
    # The same four steps in one process, from the average of the two gradients.
    alone = MetaTraining(dataclasses.replace(SETTINGS, steps=4), tmp_path / "alone").outer
    for step, (x, y) in enumerate(zip(a["own"], b["own"], strict=True)):
        alone.step((x + y) / 2, step / 4)
    assert torch.allclose(alone.theta, a["theta"], atol=1e-6)
    with pytest.raises(ValueError, match="2 processes, not of 1"):
        MetaTraining(dataclasses.replace(SETTINGS, steps=4), tmp_path / "run").resume()
