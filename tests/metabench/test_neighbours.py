"""Neighbours equal Kernel Tuner's, on spaces with holes, isolated points and one-valued parameters."""

from __future__ import annotations

import numpy as np
import pytest

from metabench import Searchspace, Space, UserError
from metabench.neighbors import KINDS

SPACES = {
    "with holes": ({"a": [1, 2, 4, 8], "b": [1, 2, 3], "c": [0, 1]}, ["a * b <= 8", "c == 0 or a > 1"]),
    "isolated points": ({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}, ["a == b"]),
    "one value": ({"a": [7], "b": [1, 2, 3], "c": ["x"]}, []),
    "values that never occur": ({"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5]}, ["a % 3 == 0", "b != 3"]),
    "one configuration": ({"a": [1], "b": [2]}, []),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPACES)
def test_neighbours_equal_kernel_tuners(name: str, kind: str) -> None:
    kernel_tuner = pytest.importorskip("kernel_tuner.searchspace")
    params, restrictions = SPACES[name]
    ours = Searchspace(Space.from_dict(params, restrictions))
    theirs = kernel_tuner.Searchspace(dict(params), list(restrictions), 1024)
    assert sorted(ours.list) == sorted(theirs.list)
    for configuration in ours.list:
        expected = {tuple(c) for c in theirs.get_neighbors_no_cache(configuration, neighbor_method=kind)}
        assert set(ours.get_neighbors(configuration, kind)) == expected - {configuration}


def test_k5_an_isolated_point_has_no_neighbour_and_no_random_one() -> None:
    searchspace = Searchspace(Space.from_dict(*SPACES["isolated points"]), seed=0)
    assert searchspace.get_neighbors((2, 2), "Hamming") == []
    assert searchspace.get_random_neighbor((2, 2), "Hamming") is None


def test_a_point_that_is_not_valid_has_neighbours_too() -> None:
    searchspace = Searchspace(Space.from_dict(*SPACES["isolated points"]))
    assert searchspace.get_neighbors((1, 2), "Hamming") == [(1, 1), (2, 2)]


def test_an_unknown_kind_lists_the_known_ones() -> None:
    space = Space.from_dict({"a": [1, 2]})
    with pytest.raises(UserError, match="Hamming, adjacent, strictly-adjacent"):
        space.neighbors(0, "close")


def test_samples_are_seeded_valid_and_without_repeats() -> None:
    space = Space.from_dict(*SPACES["with holes"])
    for method in ("get_random_sample", "get_LHS_sample", "get_distributed_random_sample"):
        first, again = (getattr(Searchspace(space, seed=1), method)(5) for _ in range(2))
        assert first == again
        assert len(set(first)) == len(first) <= 5
        assert all(space.find(c) is not None for c in first)
    assert len(Searchspace(space, seed=1).get_random_sample(10_000)) == len(space)


def test_every_row_is_found_by_its_configuration() -> None:
    space = Space.from_dict(*SPACES["with holes"])
    assert [space.find(c) for c in space.configurations] == list(range(len(space)))
    assert [space[i] for i in range(len(space))] == space.configurations
    assert np.array_equal(space.table, np.unique(space.table, axis=0))
