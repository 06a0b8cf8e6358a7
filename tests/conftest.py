"""Fixtures that every package's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """../shared beside the checkout: golden trajectories and measured spaces that are not the project's to ship."""
    folder = CHECKOUT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(
            "needs the folder ../shared (reference trajectories and measured spaces), which is not beside this checkout"
        )
    return folder


@pytest.fixture(autouse=True)
def _own_user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither read nor write the user's own caches and data."""
    home = tmp_path_factory.getbasetemp() / "user"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
