"""What a reader may get wrong is answered in one sentence, and nothing that was there is lost."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import random
from pathlib import Path

import pytest
import torch

from lopt.metatrain import checkpoint, frozen, select
from lopt.metatrain.es import Pairs
from lopt.metatrain.inner import Instances
from lopt.metatrain.lane import Lane, Unroll
from lopt.metatrain.meta_weights import like_adam
from lopt.metatrain.outer import Outer
from lopt.metatrain.tasks import FAMILIES, draw, mixture_named, task_from_json
from lopt.metatrain.tasks.mlp import MLPTask
from lopt.metatrain.train import MetaTraining, Settings
from lopt.models import pretrained

pytest.importorskip("sklearn", reason="some of these tasks are on scikit-learn's digits")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Unroll(shortest=0), "each must be at least one step"),
        (lambda: Unroll(longest=50), "the longest not below the shortest"),
        (lambda: Unroll(truncation=0), "at least one step"),
        (lambda: Unroll(late=2.0), "between 0 and 1"),
        (lambda: Unroll(method="reinforce"), "allowed: es, pes, nres, full"),
        (lambda: Unroll(perturb="biases"), "allowed: all or outputs"),
        (lambda: Unroll(method="full", perturb="outputs"), "an exact gradient is of all meta-weights"),
        (lambda: Unroll(hidden_lr_mult=0.0), "hidden_lr_mult=0.0: what steps are multiplied by is a positive number"),
        (lambda: Unroll(hidden_lr_mult=16.0, vector_lr_mult=-1.0), "vector_lr_mult=-1.0: what steps are multiplied by"),
        (lambda: Unroll(lr_decay_steps=0.0), "lr_decay_steps=0.0: what steps are multiplied by is a positive number"),
        (lambda: Unroll(by_signal="maybe"), "by_signal='maybe': it is true or false"),
        (lambda: Unroll(vector_lr_mult=0.25), "is MuLO's and wants a hidden_lr_mult"),
        (lambda: Unroll(floor=0.0), "a share of the first loss, above 0"),
        (lambda: Pairs("pes", 2, 3, 0.0), "positive deviation"),
        (lambda: Outer(average=1.0), "average=1.0: the decay of an average is at least 0 and below 1"),
        (lambda: Settings(steps=0), "there is nothing to do"),
        (lambda: Settings(steps=None), "give one of the two"),
        (lambda: Settings(steps=5, minutes=1.0), "give one of the two"),
        (lambda: Settings(lanes=1), "lanes_per_step=2 must be from 1 to lanes=1"),
        (lambda: mixture_named("mlps"), "allowed: mlp_family"),
        (lambda: task_from_json({"family": "gan"}), "unknown family 'gan'"),
        (lambda: task_from_json({"family": "mlp", "hidden": 3}), "has no field hidden"),
        (lambda: like_adam(0, (2, 8)), "at least three"),
        (lambda: frozen.frozen("test"), "allowed: held_out, validation"),
        (lambda: select.snapshots(Path("nowhere")), "no snapshots in nowhere"),
    ],
)
def test_settings_that_make_no_sense(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_task_whose_data_are_not_finite() -> None:
    class Broken(MLPTask):
        def data(self, n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
            found = super().data(n, generator)
            found["x"][0, 3] = float("nan")
            return found

    with pytest.raises(ValueError, match="the data 'x' of the mlp task hold NaN"):
        Instances(Broken(), 2, torch.Generator().manual_seed(0))


def test_weights_of_another_architecture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="100 meta-weights do not fit a network of widths"):
        MetaTraining(Settings(steps=2), tmp_path, torch.zeros(100))


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, checkpoint.CHECKPOINT, {"step": 3})

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_atomic", full)
    with pytest.raises(OSError, match=r"No space left on device.*what was there before is untouched"):
        checkpoint.save(tmp_path, checkpoint.CHECKPOINT, {"step": 4})
    monkeypatch.setattr(checkpoint, "write_atomic", pretrained.write_atomic)
    assert checkpoint.load(tmp_path / checkpoint.CHECKPOINT) == {"step": 3}


def test_scikit_learn_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from lopt.metatrain.tasks import data

    data.digits.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match="tasks on digits need scikit-learn: pip install"):
        data.digits()


# ---- tasks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_tasks_start_where_they_should_and_can_be_learned(family: str) -> None:
    rng = random.Random(3)
    for _ in range(4):
        task = FAMILIES[family].draw(rng)
        assert task_from_json(task.as_json()) == task
        again = dataclasses.replace(task, scale=1.0, tensor_spread=0.0, loss_scale=1.0)
        plain, disguised = (
            Instances(t, 2, torch.Generator().manual_seed(0)) for t in (again, dataclasses.replace(task, scale=3.0))
        )
        assert plain.layout.unpack(plain.origin)[0].shape[1:] == task.shapes[0]
        # Reparametrisation changes where the row starts and not what the network computes.
        assert torch.allclose(plain.origin, disguised.origin * disguised.multiplier, rtol=1e-5, atol=1e-7)
        losses, g = plain.losses_and_gradients(plain.origin, plain.next_batch(torch.Generator().manual_seed(1)))
        assert torch.isfinite(losses).all() and torch.isfinite(g).all() and (g != 0).float().mean() > 0.3


def test_lanes_see_families_by_their_shares() -> None:
    rng = random.Random(0)
    families = [draw({"mlp": 0.75, "conv": 0.25}, rng).family for _ in range(400)]
    assert 260 < families.count("mlp") < 340 and set(families) == {"mlp", "conv"}


def test_work_on_horizons_is_log_uniform_and_follows_the_curriculum() -> None:
    settings, rng = Settings(steps=10), random.Random(0)
    horizons = [settings.unroll.horizon(rng, 5000) for _ in range(2000)]
    assert min(horizons) >= 100 and max(horizons) <= 5000 and all(h % 20 == 0 for h in horizons)
    assert 0.43 < sum(h for h in horizons if h < 700) / sum(horizons) < 0.57  # 700 is the middle, in logarithms
    assert max(settings.unroll.horizon(rng, settings.longest(0.0)) for _ in range(100)) <= 500
    assert settings.longest(1.0) == pytest.approx(5000)


def test_a_lane_that_is_done_is_replaced(tmp_path: Path) -> None:
    unroll = Unroll(method="es", truncation=5, shortest=5, longest=5, elements=500)
    training = MetaTraining(
        Settings(tasks="mlp_family", steps=3, lanes=1, lanes_per_step=1, first_longest=5, unroll=unroll), tmp_path
    )
    before = training.lanes[0]
    training._outer_step()
    assert training.lanes[0] is not before and training.born == 2
    assert isinstance(training.lanes[0], Lane)


def test_frozen_tasks_are_as_they_were() -> None:
    # Changing them after a result has been reported would make it a result on other tasks.
    digest = hashlib.sha256(frozen.FILE.read_bytes()).hexdigest()
    assert digest == "ce94abb11bab346459df865df846e1f0b77f01afac925ab2896f0fdb826a5025"
    held_out, validation = frozen.frozen("held_out"), frozen.frozen("validation")
    assert len(held_out) == 24 and len(validation) == 12 and frozen.frozen("wide") == frozen.WIDE
    assert not set(held_out) & {*validation, *frozen.WIDE}
