"""Models of the sizes they are said to have, and loaders that read what they say they read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lopt import tasks
from lopt.tasks import data, models

pytest.importorskip("sklearn", reason="some of these tasks are on scikit-learn's digits")


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        ("gpt", {"size": "medium", "vocab": 50257, "context": 1024}, 354_823_168),  # GPT-2, published
        ("gpt", {"size": "small", "vocab": 50257, "context": 1024}, 124_439_808),
        ("vit", {"size": "b", "side": 224, "patch": 16, "channels": 3, "classes": 1000}, 86_567_656),
    ],
)
def test_the_papers_sizes(kind: str, options: dict, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "made_text", lambda *a: None)
    monkeypatch.setattr(tasks, "made_images", lambda *a: None)
    assert tasks.parameters(tasks.make_task(kind, **options)) == count


@pytest.mark.parametrize("kind", tasks.KINDS)
def test_every_task_has_a_loss_near_that_of_guessing_and_a_gradient_everywhere(kind: str) -> None:
    torch.manual_seed(0)
    task = tasks.make_task(kind)
    model = task.make()
    x, y = task.source.sample(16, torch.Generator().manual_seed(0))
    loss = task.loss(model, x, y)
    guess = np.log(32 if kind == "gpt" else 10)
    assert abs(loss.item() - guess) < 0.35 * guess
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert tasks.parameters(task) == sum(p.numel() for p in model.parameters())


def test_sources_give_the_same_batches_for_the_same_seed() -> None:
    for kind in ("gpt", "mlp"):
        a, b = (tasks.make_task(kind).source.sample(4, torch.Generator().manual_seed(7)) for _ in range(2))
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_made_text_of_a_large_vocabulary_uses_all_of_it_and_fits_in_memory() -> None:
    """A table of GPT-2's 50,257 characters for every pair of them would be 5e14 bytes."""
    (row,) = data.made_text(50257, context=8, seed=0).rows
    assert int(row.min()) >= 0 and 50_000 < int(row.max()) < 50257
    assert len(torch.unique(torch.as_tensor(row))) > 40_000
    symbols = torch.as_tensor(row) // (50257 // data.SYMBOLS)
    following = torch.bincount(symbols[1:] + data.SYMBOLS * symbols[:-1]).float()
    assert following.max() > 5 * len(row) / data.SYMBOLS**2, "a chain has favourites, even draws have none"


def test_unknown_kinds_and_sizes_list_what_there_is() -> None:
    with pytest.raises(ValueError, match="unknown kind of task 'gan'; allowed: gpt, vit"):
        tasks.make_task("gan")
    with pytest.raises(ValueError, match="unknown size 'huge' of GPT; allowed: tiny, mini"):
        tasks.make_task("gpt", size="huge")
    with pytest.raises(ValueError, match="do not divide into patches of 3"):
        tasks.make_task("vit", patch=3).make()


# ---- tokens --------------------------------------------------------------------------------------------------------


def test_token_files_are_read_window_by_window_and_never_across_files(tmp_path: Path) -> None:
    data.write_tokens(tmp_path / "train_000.bin", range(100, 130))
    data.write_tokens(tmp_path / "train_001.bin", range(500, 540))
    data.write_tokens(tmp_path / "val_000.bin", range(900, 940))
    source = data.token_files(tmp_path, context=8, vocab=1000)
    assert all(isinstance(row, np.memmap) for row in source.rows)
    x, y = source.sample(400, torch.Generator().manual_seed(0))
    assert x.shape == y.shape == (400, 8) and x.dtype == torch.int64
    assert torch.equal(x[:, 1:], y[:, :-1]) and ((y - x) == 1).all()
    firsts = set(x[:, 0].tolist())
    assert firsts == set(range(100, 122)) | set(range(500, 532)), "every window that fits, of both files"


def test_large_tokens_survive_sixteen_bits(tmp_path: Path) -> None:
    data.write_tokens(tmp_path / "train.bin", [50256, 0, 40000] * 4)
    x, _ = data.token_files(tmp_path, context=4, vocab=50257).sample(50, torch.Generator().manual_seed(0))
    assert set(x.reshape(-1).tolist()) == {50256, 0, 40000}
    with pytest.raises(ValueError, match="do not fit in 16 bits"):
        data.write_tokens(tmp_path / "bad.bin", [70000])


def test_token_folders_that_do_not_serve(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no tokens in .*nowhere: wanted train\*.bin"):
        tasks.make_task("gpt", data=tmp_path / "nowhere")
    data.write_tokens(tmp_path / "train.bin", range(5))
    with pytest.raises(ValueError, match="too short: a window needs 9 tokens"):
        data.token_files(tmp_path, context=8, vocab=100)
    data.write_tokens(tmp_path / "train.bin", range(40))
    with pytest.raises(ValueError, match="has token 39, the model's vocabulary ends at 31"):
        data.token_files(tmp_path, context=8, vocab=32)


# ---- pictures ------------------------------------------------------------------------------------------------------


def picture(path: Path, size: tuple[int, int], colour: tuple[int, int, int]) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_picture_folders_are_read_by_class(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    picture(tmp_path / "train" / "ant" / "a.png", (40, 20), (255, 0, 0))
    picture(tmp_path / "train" / "bee" / "b.JPEG", (17, 33), (0, 0, 255))
    source = data.picture_folder(tmp_path, side=16, classes=2)
    x, y = source.sample(40, torch.Generator().manual_seed(0))
    assert x.shape == (40, 3, 16, 16) and set(y.tolist()) == {0, 1}
    red = (x * torch.tensor(data.CHANNEL_STD)[:, None, None] + torch.tensor(data.CHANNEL_MEAN)[:, None, None])[y == 0]
    assert torch.allclose(red[:, 0], torch.ones(()), atol=1e-5) and red[:, 1:].abs().max() < 1e-5
    loss = tasks.make_task("vit", data=tmp_path, side=16, patch=8, classes=2)
    assert torch.isfinite(loss.loss(loss.make(), x, y))


def test_picture_folders_that_do_not_serve(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    with pytest.raises(ValueError, match=r"no pictures in .*train: wanted .*CLASS/\*.jpg"):
        tasks.make_task("vit", data=tmp_path, side=16, patch=8)
    for name in ("a", "b", "c"):
        picture(tmp_path / "train" / name / "x.png", (16, 16), (0, 0, 0))
    with pytest.raises(ValueError, match="has 3 classes, the model 2"):
        data.picture_folder(tmp_path, side=16, classes=2)
    (tmp_path / "train" / "a" / "x.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"a/x.png is no picture"):
        data.picture_folder(tmp_path, side=16, classes=3).sample(30, torch.Generator().manual_seed(0))


def test_models_of_all_sizes_can_be_described() -> None:
    with torch.device("meta"):
        counts = [sum(p.numel() for p in models.GPT(s, 50257, 1024).parameters()) for s in models.GPT_SIZES.values()]
    assert counts == sorted(counts) and counts[-1] > 1.5e9
