"""A search space, ours or Kernel Tuner's, as Kernel Tuner's strategies need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._runner import Runner


class LentSpace:
    """A search space with what a strategy lacks or gets wrong on it, and that counts its look-ups."""

    def __init__(self, searchspace: Any, runner: Runner, never_isolated: bool) -> None:
        self._inner, self._runner, self._never_isolated = searchspace, runner, never_isolated
        self._indices: np.ndarray | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def is_param_config_valid(self, param_config: Sequence[Any]) -> bool:
        self._runner.looked()
        return self._inner.is_param_config_valid(tuple(param_config))

    def get_random_sample(self, num_samples: int) -> list[tuple[Any, ...]]:
        self._runner.looked()
        return self._inner.get_random_sample(min(num_samples, self._inner.size))

    def get_random_neighbor(
        self, param_config: Sequence[Any], neighbor_method: str | None = None, **options: Any
    ) -> Any:
        self._runner.looked()
        if neighbor_method == "closest-param-indices":
            return self._closest(param_config)
        found = self._inner.get_random_neighbor(tuple(param_config), neighbor_method=neighbor_method, **options)
        return self._inner.get_random_sample(1)[0] if found is None and self._never_isolated else found

    def get_LHS_sample(self, num_samples: int) -> list[tuple[Any, ...]]:
        """As many different configurations as asked for, near a Latin hypercube drawn from the global generator.

        In the order of a set of row numbers, as in Kernel Tuner: a budget that ends within the sample has seen what comes first
        there, whatever the seed.
        """
        indices, count = self._table(), min(num_samples, self._inner.size)
        levels = indices.max(axis=0)
        strata = np.stack([np.random.permutation(count) for _ in levels], axis=1)  # noqa: NPY002 - what is seeded for strategies
        points = (strata + np.random.random(strata.shape)) / count * (levels + 1) - 0.5  # noqa: NPY002
        rows = {int(np.abs(indices - point).sum(axis=1).argmin()) for point in points}
        rest = (row for row in np.random.permutation(len(indices)).tolist() if row not in rows)  # noqa: NPY002
        rows |= {row for row, _ in zip(rest, range(count - len(rows)), strict=False)}
        return [self._inner.list[row] for row in rows]

    def _closest(self, param_config: Sequence[Any]) -> tuple[Any, ...]:
        """A valid configuration with the smallest sum of differences of value indices, at random among equals."""
        indices = self._table()
        distance = np.abs(indices - np.array(self._inner.get_param_indices(tuple(param_config)))).sum(axis=1)
        return self._inner.list[int(np.random.choice(np.flatnonzero(distance == distance.min())))]  # noqa: NPY002

    def _table(self) -> np.ndarray:
        if self._indices is None:
            self._indices = np.array(self._inner.get_list_param_indices_numpy(), dtype=np.int64)
        return self._indices
