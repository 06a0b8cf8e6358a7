"""`SmallFCLOpt(model.parameters())` trains, with no network and with weights that are what their checksum says."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest
import torch

import lopt
from lopt.metatrain.package import SUMS
from lopt.models import pretrained

FOLDERS = sorted(folder for folder in pretrained.PACKAGED.iterdir() if folder.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_they_are_what_their_checksum_says(folder: Path) -> None:
    digest, name = (folder / SUMS).read_text().split()
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert sum(f.stat().st_size for f in folder.iterdir()) < 200_000
    assert "Where it does not hold" in (folder / "README.md").read_text(), "a model card, not the form of one"


@pytest.mark.parametrize(("cls", "name"), [("SmallFCLOpt", "small_fc"), ("MuLO", "mulo")])
def test_no_network_is_needed(monkeypatch: pytest.MonkeyPatch, cls: str, name: str) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("opened a socket"))
    p = torch.nn.Parameter(torch.ones(3))
    by_default, by_name = getattr(lopt, cls)([p]), lopt.create(name, [p], weights=name)
    a, b = (o._group_values[0]["weights"].to_state() for o in (by_default, by_name))
    assert a[1] == b[1] and all(torch.equal(a[0][k], b[0][k]) for k in a[0])


def train(optimizer: str, steps: int = 150) -> float:
    """Final loss of a small network on spirals, which no meta-training task has."""
    g = torch.Generator().manual_seed(0)
    angle, arm = 6 * torch.rand(256, generator=g), torch.randint(3, (256,), generator=g)
    turn = angle + arm * 2 * torch.pi / 3
    x = (angle / 6)[:, None] * torch.stack([turn.cos(), turn.sin()], 1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    made = {
        "small_fc": lambda p: lopt.SmallFCLOpt(p, backend="reference"),
        "mulo": lambda p: lopt.MuLO(lopt.mulo_groups(model), backend="reference"),
        "adamw": lambda p: torch.optim.AdamW(p),
        "random": lambda p: lopt.SmallFCLOpt(p, weights="random:0", backend="reference"),
    }
    opt = made[optimizer](model.parameters())
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(x), arm)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def test_they_train_where_random_ones_do_not_and_default_adamw_is_slow() -> None:
    losses = {name: train(name) for name in ("small_fc", "mulo", "adamw", "random")}
    assert losses["small_fc"] < 0.8 * losses["adamw"] < 0.9 * losses["random"], losses
    assert losses["mulo"] < losses["adamw"], losses


def test_their_relatives_do_not_take_them_silently() -> None:
    p = [torch.nn.Parameter(torch.ones(3))]
    with pytest.raises(ValueError, match="no meta-weights were named"):
        lopt.create("elo", p)
    for name in ("elo", "small_fc"):
        with pytest.raises(ValueError, match=r"trained for MuLO.*use lopt\.MuLO"):
            lopt.create(name, p, weights="mulo")
