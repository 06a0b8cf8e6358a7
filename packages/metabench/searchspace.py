"""What an optimizer gets as `searchspace`: Kernel Tuner's `Searchspace`, method for method, over a metabench `Space`.

A program written for Kernel Tuner runs on it unchanged, and one written here runs in Kernel Tuner. Two things differ by design:
every random draw comes from a generator of its own, so that a seed decides it, and nothing is recomputed or deep-copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import UserError
from .space import Configuration, Space


class Searchspace:
    """Kernel Tuner's Searchspace interface.

    Args:
        space: the space; shared, never changed.
        seed: seeds every random draw made here.
    """

    def __init__(self, space: Space, seed: int | None = None) -> None:
        self._space = space
        self._random = np.random.default_rng(seed)
        self.tune_params = space.tune_params
        self.param_names = list(space.names)
        self.params_values = space.values
        self.num_params = len(space.names)
        self.size = len(space)
        self.indices = np.arange(self.size)
        self.list = space.configurations
        self.restrictions = [r.text for r in space.restrictions]
        self.tune_param_is_numeric = {
            name: all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
            for name, values in zip(space.names, space.values, strict=True)
        }
        self._places = [{value: i for i, value in enumerate(values)} for values in space.values]

    # -- configurations, rows, value indices --------------------------------------------------------------------------

    def is_param_config_valid(self, param_config: Sequence[Any]) -> bool:
        """Whether a configuration is one of the space's."""
        return self._space.find(param_config) is not None

    def get_param_config_index(self, param_config: Sequence[Any]) -> int | None:
        """Row of a configuration, None if it is not valid."""
        return self._space.find(param_config)

    def get_param_configs_at_indices(self, indices: Sequence[int] | np.ndarray) -> list[Configuration]:
        """Configurations of some rows."""
        return [self.list[i] for i in indices]

    def get_param_indices(self, param_config: Sequence[Any]) -> tuple[int, ...]:
        """Value index of each parameter; the configuration need not be valid."""
        try:
            return tuple(place[value] for place, value in zip(self._places, param_config, strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{param_config!r} has a value that is none of its parameter's: {error}") from error

    def get_param_config_from_param_indices(self, param_indices: Sequence[int]) -> Configuration:
        """Configuration of value indices; it need not be valid."""
        return tuple(values[i] for values, i in zip(self.params_values, param_indices, strict=True))

    def get_list_dict(self) -> dict[Configuration, int]:
        """{configuration: row}."""
        return {configuration: row for row, configuration in enumerate(self.list)}

    def get_list_numpy(self) -> np.ndarray:
        """All configurations, (n,), with a field for each parameter."""
        fields = [(name, np.array(values).dtype) for name, values in self.tune_params.items()]
        return np.array(self.list, dtype=fields)

    def get_list_param_indices_numpy(self) -> np.ndarray:
        """Value indices of all configurations, (n, d)."""
        return self._space.table.astype(np.int64)

    def get_true_tunable_params(self) -> dict[str, list[Any]]:
        """Parameters with more than one value."""
        return {name: values for name, values in self.tune_params.items() if len(values) > 1}

    # -- random draws -------------------------------------------------------------------------------------------------

    def get_random_sample_indices(self, num_samples: int) -> np.ndarray:
        """Rows of a random sample without replacement."""
        if num_samples > self.size:
            raise UserError(f"a sample of {num_samples} was asked of a space of {self.size} configurations")
        if num_samples == 1:  # permuting the whole space for one draw is what makes Kernel Tuner's cost 0.1-2 ms
            return self._random.integers(self.size, size=1)
        return self._random.choice(self.size, size=num_samples, replace=False, shuffle=True)

    def get_random_sample(self, num_samples: int) -> list[Configuration]:
        """A random sample without replacement; at most the whole space."""
        return self.get_param_configs_at_indices(self.get_random_sample_indices(min(num_samples, self.size)))

    def get_LHS_sample_indices(self, num_samples: int) -> list[int]:
        """Rows near a Latin hypercube over the value indices (fewer than asked for when points fall together)."""
        strata = np.stack([self._random.permutation(num_samples) for _ in range(self.num_params)], axis=1)
        unit = (strata + self._random.random(strata.shape)) / num_samples
        return self._nearest_rows(unit)

    def get_LHS_sample(self, num_samples: int) -> list[Configuration]:
        """Configurations near a Latin hypercube."""
        return self.get_param_configs_at_indices(self.get_LHS_sample_indices(min(num_samples, self.size)))

    def get_distributed_random_sample_indices(self, num_samples: int, sampling_factor: int = 10) -> list[int]:
        """Rows of a random sample spread out over the space: of `sampling_factor` times as many, the farthest apart."""
        pool = self.get_random_sample_indices(min(num_samples * sampling_factor, self.size))
        scaled = self._scaled()[pool]
        chosen = [0]
        distance = np.abs(scaled - scaled[0]).sum(axis=1)
        while len(chosen) < min(num_samples, len(pool)):
            chosen.append(int(distance.argmax()))
            distance = np.minimum(distance, np.abs(scaled - scaled[chosen[-1]]).sum(axis=1))
            distance[chosen] = -1.0
        return pool[chosen].tolist()

    def get_distributed_random_sample(self, num_samples: int, sampling_factor: int = 10) -> list[Configuration]:
        """A random sample spread out over the space."""
        return self.get_param_configs_at_indices(
            self.get_distributed_random_sample_indices(num_samples, sampling_factor)
        )

    def _scaled(self) -> np.ndarray:
        """Value indices scaled to [0, 1], (n, d)."""
        return self._space.table / np.maximum([len(v) - 1 for v in self.params_values], 1)

    def _nearest_rows(self, points: np.ndarray) -> list[int]:
        scaled = self._scaled()
        rows = (int(np.abs(scaled - point).sum(axis=1).argmin()) for point in points)
        return list(dict.fromkeys(rows))

    # -- neighbours ---------------------------------------------------------------------------------------------------

    def get_neighbors_indices(
        self, param_config: Sequence[Any], neighbor_method: str | None = None, build_full_cache: bool = False
    ) -> np.ndarray:
        """Rows of the neighbours; the configuration need not be valid."""
        method = neighbor_method or "Hamming"
        row = self._space.find(param_config)
        if row is not None:
            return self._space.neighbors(row, method)
        return self._space.neighborhood.of_indices(np.array(self.get_param_indices(param_config)), method)

    get_neighbors_indices_no_cache = get_neighbors_indices

    def get_neighbors(
        self, param_config: Sequence[Any], neighbor_method: str | None = None, build_full_cache: bool = False
    ) -> list[Configuration]:
        """The neighbours of a configuration."""
        rows = self.get_neighbors_indices(param_config, neighbor_method)
        return [self.list[i] for i in rows.tolist()]

    get_neighbors_no_cache = get_neighbors

    def are_neighbors_indices_cached(self, param_config: Sequence[Any], neighbor_method: str | None = None) -> bool:
        """Look-up is as fast either way, so: yes."""
        return True

    def get_random_neighbor(
        self, param_config: Sequence[Any], neighbor_method: str | None = None, use_partial_cache: bool = True
    ) -> Configuration | None:
        """One neighbour at random, None if there is none."""
        rows = self.get_neighbors_indices(param_config, neighbor_method)
        return self.list[rows[self._random.integers(len(rows))]] if len(rows) else None

    def get_param_neighbors(
        self, param_config: Sequence[Any], index: int, neighbor_method: str, randomize: bool
    ) -> list[Any]:
        """Values that the neighbours have for one parameter, without the configuration's own."""
        own = param_config[index]
        seen = dict.fromkeys(n[index] for n in self.get_neighbors(param_config, neighbor_method) if n[index] != own)
        values = list(seen)
        if randomize:
            self._random.shuffle(values)
        return values

    def order_param_configs(
        self, param_configs: list[Configuration], order: Sequence[int], randomize_in_params: bool = True
    ) -> list[Configuration]:
        """A random one of different configurations, then those that differ from it in the first parameter of `order`, then
        those that differ in the second and not the first, and so on; each of these groups shuffled if asked.

        Raises:
            UserError: `order` does not name each parameter's place once.
        """
        if sorted(order) != list(range(self.num_params)):
            raise UserError(f"order must hold each of 0 to {self.num_params - 1} once, not {list(order)}")
        first = param_configs[int(self._random.integers(len(param_configs)))]
        groups: list[list[Configuration]] = [[] for _ in order]
        for configuration in param_configs:
            differing = (place for place, j in enumerate(order) if configuration[j] != first[j])
            if (place := next(differing, None)) is not None:
                groups[place].append(configuration)
        for group in groups if randomize_in_params else ():
            self._random.shuffle(group)
        return [first, *(configuration for group in groups for configuration in group)]
