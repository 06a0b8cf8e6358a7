"""Training runs: exact when taken up, honest when they diverge, the same by every switch that should not matter."""

from __future__ import annotations

import dataclasses
import math
import sys
import types
from pathlib import Path

import pytest
import torch
from killing import Killed, killed_at

from lopt import tasks
from lopt.metatrain import checkpoint
from lopt.models import CELO2Weights, SmallFCWeights, VeLOWeights
from lopt.models.small_fc import StepScales
from lopt.train import Settings, Training, schedules, trackers
from lopt.train.optimizers import build

pytest.importorskip("sklearn", reason="some of these tasks are on scikit-learn's digits")

TASK = tasks.make_task("mlp", width=8, depth=1, batch=8)
SETTINGS = Settings(steps=12, lr=1e-2, schedule="cosine", warmup=0.2, clip=1.0, save_every=4)
LEARNED = {
    "small_fc": SmallFCWeights.random(0),
    "mulo": SmallFCWeights.random(0),
    "velo": VeLOWeights.random(0, width=8, bank=4),
    "celo2": CELO2Weights.random(0),
}


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor", "muon", *LEARNED])
def test_taken_up_it_equals_the_unbroken_run(tmp_path: Path, optimizer: str) -> None:
    options = {}
    if optimizer in LEARNED:
        options["weights"] = str(LEARNED[optimizer].save_pretrained(tmp_path / "weights"))
        options |= {} if optimizer == "celo2" else {"backend": "reference"}  # nothing to compile
    settings = dataclasses.replace(SETTINGS, optimizer=optimizer, options=options)
    task = tasks.make_task("resnet", width=4, batch=4) if optimizer == "adamw" else TASK  # batch norm has state as well

    def training(name: str) -> Training:
        return Training(task, settings, tmp_path / name)

    whole = training("whole")
    result = whole.run()
    with pytest.raises(Killed):
        training("broken").run(killed_at(7))
    broken = training("broken").resume()
    assert len(broken.losses) == 4
    assert broken.run().losses == result.losses
    for a, b in zip(whole.model.state_dict().values(), broken.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    curves = [(tmp_path / name / checkpoint.CURVE).read_text().splitlines() for name in ("whole", "broken")]
    assert len(curves[0]) == len(curves[1]) == 13


def test_other_settings_are_refused(tmp_path: Path) -> None:
    Training(TASK, SETTINGS, tmp_path).run()
    with pytest.raises(ValueError, match="another lr: resume it as it was begun"):
        Training(TASK, dataclasses.replace(SETTINGS, lr=1.0), tmp_path).resume()
    with pytest.raises(ValueError, match="there is no checkpoint"):
        Training(TASK, SETTINGS, tmp_path / "nowhere").resume()


def test_a_run_that_diverges_ends_there_and_is_infinite(tmp_path: Path) -> None:
    class Cubed(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.flatten(1)) ** 3

    task = dataclasses.replace(TASK, make=lambda: Cubed(64, 10))
    result = Training(task, Settings(steps=50, lr=1e20), tmp_path).run()
    assert result.diverged and math.isinf(result.final) and len(result.losses) < 50


def test_data_that_hold_nan_are_named(tmp_path: Path) -> None:
    class Source:
        def sample(self, batch: int, generator: torch.Generator):
            return torch.full((batch, 64), float("nan")), torch.zeros(batch, dtype=torch.int64)

    with pytest.raises(ValueError, match="the batch of step 0 holds NaN"):
        Training(dataclasses.replace(TASK, source=Source()), SETTINGS, tmp_path).run()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 0}, "at least one step"),
        ({"warmup": 1.0}, "share of the run"),
        ({"schedule": "sine"}, "allowed: constant"),
    ],
)
def test_settings_that_make_no_sense(change, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**change)


def test_an_unknown_optimizer_lists_them() -> None:
    with pytest.raises(ValueError, match=r"unknown optimizer 'sgd'; allowed: small_fc.*adamw, adafactor, muon"):
        build("sgd", TASK.make(), 0.1, 10)


def test_checkpointed_activations_give_the_same_losses(tmp_path: Path) -> None:
    losses = []
    for on in (False, True):
        task = tasks.make_task("gpt", context=8, batch=4, checkpointing=on)
        losses.append(Training(task, Settings(steps=3), tmp_path / str(on)).run().losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_bf16_is_close_and_is_not_float32(tmp_path: Path) -> None:
    plain, half = (Training(TASK, Settings(steps=5, bf16=on), tmp_path / str(on)).run().losses for on in (False, True))
    assert plain != half
    assert plain == pytest.approx(half, rel=2e-2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch about torch
def test_a_compiled_model_trains_the_same(tmp_path: Path) -> None:
    plain, fast = (
        Training(TASK, Settings(steps=3, compile=on), tmp_path / str(on)).run().losses for on in (False, True)
    )
    assert plain == pytest.approx(fast, rel=1e-5)


def test_schedules_begin_and_end_where_they_should() -> None:
    for name in schedules.SCHEDULES:
        rising = [schedules.multiple(name, t, 100, 0.1) for t in range(10)]
        assert rising == sorted(rising) and 0 < rising[0] < 0.2
        assert schedules.multiple(name, 10, 100, 0.1) == pytest.approx(1.0, abs=0.02)
    assert schedules.multiple("cosine", 99, 100, 0.0) < 0.001
    assert schedules.multiple("late", 79, 100, 0.0) == 1.0
    assert schedules.multiple("late", 90, 100, 0.0) == pytest.approx(0.5)
    within = StepScales(lr_decay_steps=schedules.TIMESCALE).after(torch.arange(400.0)).tolist()
    assert within == pytest.approx([schedules.multiple("inverse_sqrt", t, 9000, 0.0) for t in range(400)])


def test_rates_follow_the_schedule(tmp_path: Path) -> None:
    Training(TASK, SETTINGS, tmp_path).run()
    rates = [float(line.split(",")[3]) for line in (tmp_path / checkpoint.CURVE).read_text().splitlines()[1:]]
    wanted = [1e-2 * schedules.multiple("cosine", t, 12, 0.2) for t in range(12)]
    assert rates == pytest.approx(wanted)


# ---- trackers: stand-ins, because none of the packages need be installed ---------------------------------------------


def test_every_tracker_hears_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: dict[str, list] = {"tensorboard": [], "wandb": [], "mlflow": []}
    writer = types.SimpleNamespace(add_text=lambda *a: None, close=lambda: heard["tensorboard"].append("end"),
                                   add_scalar=lambda key, value, step: heard["tensorboard"].append((key, step)))  # fmt: skip
    run = types.SimpleNamespace(log=lambda values, step: heard["wandb"].append((values["loss"], step)),
                                finish=lambda: heard["wandb"].append("end"))  # fmt: skip
    flow = types.SimpleNamespace(start_run=lambda run_name: None, log_params=lambda values: None,
                                 log_metrics=lambda values, step: heard["mlflow"].append((values["loss"], step)),
                                 end_run=lambda: heard["mlflow"].append("end"))  # fmt: skip
    board = types.SimpleNamespace(SummaryWriter=lambda folder: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **options: run))
    monkeypatch.setitem(sys.modules, "mlflow", flow)
    three = [trackers.open_tracker(kind, tmp_path, "run", {"lr": 1}) for kind in heard]
    losses = Training(TASK, Settings(steps=3), tmp_path, three).run().losses
    assert heard["wandb"] == heard["mlflow"] == [*((x, t) for t, x in enumerate(losses)), "end"]
    assert [step for key, step in heard["tensorboard"][:-1] if key == "loss"] == [0, 1, 2]


def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match="this tracker needs the package 'wandb'"):
        trackers.open_tracker("wandb", tmp_path, "run", {})
    with pytest.raises(ValueError, match="allowed: tensorboard, wandb, mlflow"):
        trackers.open_tracker("neptune", tmp_path, "run", {})
