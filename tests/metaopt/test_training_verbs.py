"""`metaopt train` and `metaopt metatrain`: what they write, how they go on, what they answer to mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SHORT = ("baseline.rates=[1e-3,1e-2]", "task.width=8", "task.batch=8", "steps=12")
TINY = ("tasks=mlp_family", "steps=4", "meta.lanes=2", "meta.log_every=2", "meta.save_every=2", "meta.unroll.elements=500",
        "meta.unroll.truncation=5", "meta.first_longest=100")  # fmt: skip


def folder(done) -> Path:
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1].split("  ")[0])


def test_train_writes_curves_beside_adamw_and_goes_on_where_it_was(metaopt, tmp_path: Path) -> None:
    where = f"hydra.run.dir={tmp_path / 'run'}"
    done = metaopt("train", "task=mlp", "learned_optimizer.weights=random:0", *SHORT, where)
    out = folder(done)
    names = (
        "loss_against_step.png",
        "loss_against_seconds.csv",
        "results.csv",
        "summary.json",
        "runs/small_fc-1/curve.csv",
    )
    assert all((out / name).is_file() for name in names)
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary) == {"small_fc", "adamw", "adamw default"}
    assert summary["adamw default"]["lr"] == 1e-3
    again = metaopt("train", "task=mlp", "learned_optimizer.weights=random:0", *SHORT, where, "resume=true")
    folder(again)
    assert json.loads((out / "summary.json").read_text()) == summary


def test_a_sweep_runs_every_optimizer(metaopt) -> None:
    done = metaopt("train", "-m", "task=mlp", "learned_optimizer=adamw_cosine,muon", "seed=0,1", "steps=3", "baseline=null",
                   "learned_optimizer.rates=[1e-3]", "task.width=4")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("final loss: adamw_cosine") == done.stdout.count("final loss: muon_cosine") == 2


def test_metatrain_makes_weights_that_train_takes(metaopt) -> None:
    out = folder(metaopt("metatrain", *TINY))
    assert all(
        (out / name).is_file() for name in ("curve.csv", "meta_loss.png", "checkpoint.pt", "weights/model.safetensors")
    )
    done = metaopt("train", "task=mlp", f"learned_optimizer.weights={out / 'weights'}", "baseline=null", *SHORT[1:])
    assert "final loss: small_fc" in done.stdout, done.stderr


def test_metatrain_over_two_processes(metaopt) -> None:
    out = folder(metaopt("metatrain", *TINY, "workers=2"))
    assert (out / "weights" / "config.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "task.size=huge"], "unknown size 'huge' of GPT; allowed: tiny"),
        (["train", "task.data=nowhere"], "no tokens in nowhere"),
        (["train", "learned_optimizer.weights=nowhere"], "no meta-weights at 'nowhere'"),
        (["train", "steps=0"], "a training has at least one step"),
        (["metatrain", "tasks=gans"], "unknown tasks 'gans'; allowed: mlp_family"),
        (["metatrain", "meta.unroll.shortest=0"], "each must be at least one step"),
        (["metatrain", "steps=3", "resume=true", "hydra.run.dir=empty"], "there is no checkpoint"),
    ],
)
def test_mistakes_are_one_sentence(metaopt, arguments: list[str], message: str) -> None:
    done = metaopt(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
