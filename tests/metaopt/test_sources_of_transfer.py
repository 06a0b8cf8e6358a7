"""transfer=[...]: recordings from elsewhere reach gp_transfer, joined by configuration; what cannot be a source is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from metabench import Recording, Space, catalog, registry, save
from metabench.errors import UserError
from metaopt import transfer, tune

NAMES = ("block", "tile", "unroll")
VALUES = ([16, 32, 64, 128], [1, 2, 4, 8, 16], [0, 1, 2])


def write(hub: Path, device: str, names: tuple[str, ...] = NAMES, values: tuple = VALUES, kernel: str = "toy") -> Path:
    """A recording of a hub; all devices agree but for a little, and each lists its configurations in another order."""
    order = list(range(len(names)))[:: -1 if device == "other" else 1]
    space = Space.from_dict({names[j]: values[j] for j in order})
    table = np.stack([space.table[:, order.index(j)] for j in range(len(names))], axis=1)
    noise = 0.02 * np.random.default_rng(len(device)).random(len(space))
    costs = 1.0 + np.abs(table - [2, 3, 1]).sum(axis=1) + noise
    recording = Recording(kernel, device, space, costs, np.ones(len(space)), np.full(len(space), "correct"))
    return save(recording, hub / "cachefiles" / kernel / f"{device}.json.gz")


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A hub of one kernel on two devices, and of another kernel."""
    folder = tmp_path / "hub"
    for device in ("here", "other"):
        write(folder, device)
    write(folder, "there", ("a", "b", "c"), kernel="another")
    return folder


def test_a_source_in_another_order_of_parameters_tells_the_best_at_once(metaopt, hub: Path) -> None:
    done = metaopt(
        "score", f"spaces.root={hub}", "spaces.recordings=[toy/here]", "scoring=direct", "repeats=3",
        "optimizers=[gp_transfer,gp_general]", "transfer=[other]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = Path(done.stdout.strip().splitlines()[-1].split("  ")[0])
    with (out / "scores.csv").open() as file:
        p = {row["optimizer"]: float(row["P_direct"]) for row in csv.DictReader(file)}
    assert p["gp_transfer"] > p["gp_general"]


def test_a_mistake_is_one_sentence(metaopt) -> None:
    done = metaopt("tune", "kernel=gemm", "transfer=[nowhere]")
    assert done.returncode == 2
    assert "unknown recording of gemm 'nowhere'; allowed: avx2, sse42" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "unknown recording of toy 'nowhere'"),
        ("here", "transfer from toy/here to itself would give the answer away"),
        ("toy/here", "transfer from toy/here to itself would give the answer away"),
        ("another/there", "another/there is no recording of toy"),
        ("{hub}/cachefiles/another/there.json.gz", "it lacks the parameter 'block'; it has a, b, c"),
        ("{hub}/cachefiles/toy/apart.json.gz", "no configuration that worked there is in this space"),
    ],
)
def test_what_is_no_source_is_refused(hub: Path, source: str, message: str) -> None:
    write(hub, "apart", values=([17, 33], [1, 2, 4, 8, 16], [0, 1, 2]))
    target = catalog.select(["toy/here"], hub)
    with pytest.raises(UserError, match=re.escape(message)):
        transfer.informed({"t": registry.Named("gp_transfer")}, [source.format(hub=hub)], target, hub)


def test_sources_that_nobody_uses_are_refused(hub: Path) -> None:
    with pytest.raises(UserError, match="add gp_transfer to optimizers"):
        transfer.informed({"pso": registry.Named("pso")}, ["other"], catalog.select(["toy/here"], hub), hub)


def test_each_kernel_gets_its_own_sources(hub: Path) -> None:
    """Two kernels scored at once: a device is looked up for each; a name or a path belongs to one."""
    write(hub, "other", ("a", "b", "c"), kernel="another")
    targets = catalog.select(["toy/here", "another/there"], hub)
    path = str(hub / "cachefiles" / "toy" / "other.json.gz")
    for entries, kernels in ((["other"], {"toy", "another"}), (["toy/other"], {"toy"}), ([path], {"toy"})):
        found = transfer.informed({"t": registry.Named("gp_transfer")}, entries, targets, hub)["t"]
        assert {source.kernel for source in found.sources} == kernels


@pytest.mark.parametrize(
    ("tuner", "device", "sources", "message"),
    [
        ("gp_general", "avx2", ["avx2"], "transfer from gemm/avx2 to itself"),
        ("pso", "avx2", ["sse42"], "pso cannot use transfer"),
    ],
)
def test_tune_refuses_too(tuner: str, device: str, sources: list[str], message: str) -> None:
    config = OmegaConf.create({"kernel": "gemm", "tuner": tuner, "device": device, "transfer": sources})
    with pytest.raises(UserError, match=message):
        tune.informed(config)
