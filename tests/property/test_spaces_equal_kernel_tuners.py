"""The five real definitions mean to us what they mean to Kernel Tuner: the same valid configurations, the same neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metabench import Searchspace, Space
from metabench.neighbors import KINDS

DEFINITIONS = ("convolution_milo", "dedispersion_milo", "gemm_milo", "hotspot_milo", "hotspot_milo+blocks_per_sm")
SIZES = dict(zip(DEFINITIONS, (4_362, 11_130, 116_928, 82_984, 349_853), strict=True))
SAMPLES = {"Hamming": 40, "adjacent": 12, "strictly-adjacent": 12}


def definition_of(folder: Path, name: str) -> dict[str, Any]:
    """The T1 definition; "+blocks_per_sm" is the papers' hotspot, with one parameter and one restriction more."""
    kernel, _, more = name.partition("+")
    definition = json.loads((folder / f"{kernel}.json").read_text())
    if more:
        section = definition["ConfigurationSpace"]
        memory = section["Conditions"][-1]["Expression"].split(" <= ")[0]
        section["TuningParameters"].append({"Name": "blocks_per_sm", "Values": "[0, 1, 2, 3, 4]"})
        section["Conditions"].append({"Expression": f"blocks_per_sm == 0 or {memory} * blocks_per_sm <= 102400"})
    return definition


@pytest.fixture(scope="module", params=DEFINITIONS)
def both(request: pytest.FixtureRequest, shared_dir: Path) -> tuple[Searchspace, Any]:
    """(our search space, Kernel Tuner's) of one definition."""
    kernel_tuner = pytest.importorskip("kernel_tuner.searchspace", reason="Kernel Tuner is not installed")
    space = Space.from_t1(definition_of(shared_dir / "spaces" / "kernels", request.param))
    assert len(space) == SIZES[request.param]
    theirs = kernel_tuner.Searchspace(space.tune_params, [r.text for r in space.restrictions], 10**9)
    return Searchspace(space, seed=0), theirs


def test_the_valid_configurations_are_the_same(both: tuple[Searchspace, Any]) -> None:
    ours, theirs = both
    assert len(theirs.list) == len(ours.list)
    assert set(map(tuple, theirs.list)) == set(ours.list)


@pytest.mark.parametrize("kind", KINDS)
def test_the_neighbours_of_a_sample_are_the_same(both: tuple[Searchspace, Any], kind: str) -> None:
    ours, theirs = both
    rows = np.random.default_rng(1).choice(ours.size, SAMPLES[kind], replace=False)
    for row in [0, ours.size - 1, *rows.tolist()]:
        configuration = ours.list[row]
        expected = {tuple(c) for c in theirs.get_neighbors_no_cache(configuration, neighbor_method=kind)}
        assert set(ours.get_neighbors(configuration, kind)) == expected - {configuration}


def test_an_invalid_point_has_the_same_neighbours(both: tuple[Searchspace, Any]) -> None:
    ours, theirs = both
    rng = np.random.default_rng(2)
    for _ in range(12):
        point = tuple(values[int(rng.integers(len(values)))] for values in ours.params_values)
        expected = {tuple(c) for c in theirs.get_neighbors_no_cache(point, neighbor_method="Hamming")}
        assert set(ours.get_neighbors(point, "Hamming")) == expected - {point}
