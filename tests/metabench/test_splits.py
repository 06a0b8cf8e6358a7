"""Splits keep what was evolved on apart from what is reported on, and name only recordings that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metabench import hub

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "spaces"
NAMES = sorted(p.stem for p in FOLDER.glob("*.yaml"))


def split(name: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (extra tune)")
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


def recordings(name: str) -> set[str]:
    """Recordings of the hub that a split names, kernels written out."""
    there = [p.removeprefix("cachefiles/").removesuffix(".json.gz") for p in hub.manifest()["files"]]
    wanted = split(name)["recordings"]
    return {path for path in there for one in wanted if path == one or path.split("/")[0] == one}


@pytest.mark.parametrize("name", NAMES)
def test_every_split_has_every_key(name: str) -> None:
    content = split(name)
    assert content["name"] == name
    assert {"root", "recordings", "objective", "maximize"} <= set(content)
    assert content["recordings"]


def test_the_papers_split_by_device() -> None:
    train, test = recordings("paper_train"), recordings("paper_test")
    assert len(train) == len(test) == 6
    assert not train & test
    assert train | test == recordings("paper_all")
    assert {r.split("/")[1] for r in train} == {"A100", "A4000", "MI250X"}


@pytest.mark.parametrize("kernel", ["convolution", "dedispersion", "gemm", "hotspot"])
def test_one_kernel_is_left_out_whole(kernel: str) -> None:
    others, held_out = recordings(f"leave_out_{kernel}"), recordings(f"held_out_{kernel}")
    everything = {
        p.removeprefix("cachefiles/").removesuffix(".json.gz") for p in hub.manifest()["files"] if "cachefiles" in p
    }
    assert {r.split("/")[0] for r in held_out} == {f"{kernel}_milo"}
    assert not others & held_out
    assert others | held_out == everything
