"""`SmallFCLOpt(model.parameters())` trains, with no network and with weights that are what their checksum says."""

from __future__ import annotations

import hashlib
import socket

import pytest
import torch

import lopt
from lopt.metatrain.package import SUMS
from lopt.models import pretrained

FOLDER = pretrained.PACKAGED / "small_fc"


def test_they_are_what_their_checksum_says() -> None:
    digest, name = (FOLDER / SUMS).read_text().split()
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) < 200_000


def test_no_network_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("opened a socket"))
    p = torch.nn.Parameter(torch.ones(3))
    by_default, by_name = lopt.SmallFCLOpt([p]), lopt.create("small_fc", [p], weights="small_fc")
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
    losses = {name: train(name) for name in ("small_fc", "adamw", "random")}
    assert losses["small_fc"] < 0.8 * losses["adamw"] < 0.9 * losses["random"]


@pytest.mark.parametrize("name", ["mulo", "elo"])
def test_their_relatives_do_not_take_them_silently(name: str) -> None:
    with pytest.raises(ValueError, match="no meta-weights were named"):
        lopt.create(name, [torch.nn.Parameter(torch.ones(3))])
