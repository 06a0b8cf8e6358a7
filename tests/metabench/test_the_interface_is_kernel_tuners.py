"""What a program written for Kernel Tuner may call on its search space besides samples and neighbours means the same here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metabench import Searchspace, Space, UserError

kernel_tuner = pytest.importorskip("kernel_tuner.searchspace", reason="Kernel Tuner is not installed")
PARAMETERS: dict[str, list[Any]] = {
    "a": [1, 2, 4, 8],
    "order": ["row", "column"],
    "pad": [False, True],
    "scale": [0.5, 1.0],
}
RESTRICTIONS = ["a < 8 or pad"]


@pytest.fixture
def both() -> tuple[Searchspace, Any]:
    theirs = kernel_tuner.Searchspace(dict(PARAMETERS), list(RESTRICTIONS), 1024)
    return Searchspace(Space.from_dict(PARAMETERS, RESTRICTIONS), seed=0), theirs


def test_look_ups(both: tuple[Searchspace, Any]) -> None:
    ours, theirs = both
    assert set(ours.get_list_dict()) == set(theirs.get_list_dict())
    for row, configuration in enumerate(ours.list):
        indices = ours.get_param_indices(configuration)
        assert ours.get_param_config_index(configuration) == ours.get_list_dict()[configuration] == row
        assert indices == theirs.get_param_indices(configuration)
        assert ours.get_param_config_from_param_indices(indices) == configuration
    assert ours.get_param_config_index((8, "row", False, 1.0)) is None
    assert ours.are_neighbors_indices_cached(ours.list[0], "Hamming")
    with pytest.raises(UserError, match=r"\(3, 'row', False, 1.0\) has a value that is none of its parameter's"):
        ours.get_param_indices((3, "row", False, 1.0))


def test_arrays(both: tuple[Searchspace, Any]) -> None:
    ours, theirs = both
    mine, other = ours.get_list_numpy(), theirs.get_list_numpy()
    assert mine.dtype == other.dtype and mine.shape == other.shape
    assert sorted(mine.tolist()) == sorted(other.tolist())
    indices = ours.get_list_param_indices_numpy()
    assert sorted(indices.tolist()) == sorted(theirs.get_list_param_indices_numpy().tolist())
    assert np.array_equal(indices, [ours.get_param_indices(c) for c in ours.list])


@pytest.mark.parametrize("randomize", [False, True])
def test_values_of_the_neighbours(both: tuple[Searchspace, Any], randomize: bool) -> None:
    ours, theirs = both
    for configuration in ours.list:
        for index in range(ours.num_params):
            mine = ours.get_param_neighbors(configuration, index, "Hamming", randomize)
            assert sorted(mine) == sorted(theirs.get_param_neighbors(configuration, index, "Hamming", False))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1]])
def test_the_order_of_configurations(
    both: tuple[Searchspace, Any], order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theirs never shuffles, whatever it is told; who comes first is drawn, so it is told ours."""
    ours, theirs = both
    for _ in range(5):
        mine = ours.order_param_configs(ours.list, order, randomize_in_params=False)
        monkeypatch.setattr(kernel_tuner, "choice", lambda _, first=mine[0]: first)
        assert mine == theirs.order_param_configs(ours.list, order, False)
        shuffled = ours.order_param_configs(ours.list, order)
        assert shuffled != mine and sorted(shuffled) == sorted(mine)
        places = [next(k for k, j in enumerate(order) if c[j] != shuffled[0][j]) for c in shuffled[1:]]
        assert places == sorted(places)
    for wrong in ([0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4]):
        with pytest.raises(UserError, match="order must hold each of 0 to 3 once, not"):
            ours.order_param_configs(ours.list, wrong)
