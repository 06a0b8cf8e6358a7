"""A search space: parameters, restrictions, and the valid configurations as a table of value indices.

The table is enumerated once, parameter by parameter, each restriction applied as soon as the parameters it reads are placed,
so that the Cartesian product (22 million for hotspot) is never laid out. Rows are in lexicographic order, the first
parameter slowest; a configuration is named by its row everywhere else in metabench.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import expression, neighbors, restriction
from .errors import UserError
from .files import read_json
from .restriction import Restriction, RestrictionLike

Configuration = tuple[Any, ...]


class Space:
    """Parameters, restrictions and the valid configurations.

    Attributes:
        names: parameter names, in definition order.
        values: for each parameter its values, in definition order: ints, floats, booleans or strings.
        restrictions: what a valid configuration fulfils; empty for a space given by its configurations.
        table: (n, d) value indices of the valid configurations, lexicographic; the smallest unsigned dtype that holds them.
        defaults: the default configuration as {name: value}; empty if the definition states none.
    """

    def __init__(
        self,
        names: Sequence[str],
        values: Sequence[Sequence[Any]],
        restrictions: tuple[Restriction, ...],
        table: np.ndarray,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.names = tuple(names)
        self.values = tuple(tuple(v) for v in values)
        self.restrictions = restrictions
        self.table = table
        self.defaults = dict(defaults or {})

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is only cached: the list of configurations is ten times the table.
        return Space, (self.names, self.values, self.restrictions, self.table, self.defaults)

    # -- construction -------------------------------------------------------------------------------------------------

    @classmethod
    def from_dict(
        cls,
        tune_params: Mapping[str, Sequence[Any]],
        restrictions: RestrictionLike | Iterable[RestrictionLike] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Space:
        """A space from Kernel Tuner's `tune_params` and `restrictions`.

        Raises:
            UserError: no parameters, a parameter without values or with one twice, a restriction that cannot be read, or no
                valid configuration at all.
        """
        _check_parameters(tune_params)
        names, values = tuple(tune_params), tuple(tuple(v) for v in tune_params.values())
        read = restriction.read(restrictions, names)
        table = _enumerate(names, values, read)
        if not len(table):
            raise UserError(
                f"the space of {', '.join(names)} has no valid configuration: none of {math.prod(map(len, values)):,} "
                f"fulfils {' and '.join(r.text for r in read)}"
            )
        return cls(names, values, read, table, defaults)

    @classmethod
    def from_t1(cls, source: Path | str | Mapping[str, Any]) -> Space:
        """A space from a T1 definition: a path, or the object itself.

        Raises:
            UserError: the file cannot be read or lacks what T1 asks for; the message names file and entry.
        """
        definition = source if isinstance(source, Mapping) else read_json(source)
        where = "the T1 definition" if isinstance(source, Mapping) else str(source)
        try:
            section = definition["ConfigurationSpace"]
            parameters = section["TuningParameters"]
            tune_params = {p["Name"]: _t1_values(p["Values"]) for p in parameters}
            defaults = {p["Name"]: _t1_default(p["Default"]) for p in parameters if "Default" in p}
            conditions = [c["Expression"] for c in section.get("Conditions", [])]
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{where} is not T1: {error} is missing or of the wrong kind under ConfigurationSpace"
            ) from error
        try:
            return cls.from_dict(tune_params, conditions, defaults)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error

    @classmethod
    def from_configurations(cls, names: Sequence[str], configurations: Iterable[Sequence[Any]]) -> Space:
        """The space of exactly these configurations: for a recording that comes without a definition."""
        rows = [tuple(c) for c in configurations]
        if not rows:
            raise UserError(f"a space of {', '.join(names)} was given no configuration")
        values = [_ordered({row[j] for row in rows}) for j in range(len(names))]
        places = [{value: i for i, value in enumerate(column)} for column in values]
        indices = np.array([[place[v] for place, v in zip(places, row, strict=True)] for row in rows])
        table = np.unique(indices, axis=0)
        return cls(names, values, (), table.astype(_smallest_dtype(values)))

    # -- reading ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> Configuration:
        return tuple(column[i] for column, i in zip(self.values, self.table[row], strict=True))

    def __repr__(self) -> str:
        return f"Space({len(self.names)} parameters, {len(self):,} of {self.cartesian_size:,} configurations valid)"

    @property
    def cartesian_size(self) -> int:
        """Number of configurations before restrictions."""
        return math.prod(len(v) for v in self.values)

    @property
    def tune_params(self) -> dict[str, list[Any]]:
        """Kernel Tuner's form of the parameters."""
        return {name: list(values) for name, values in zip(self.names, self.values, strict=True)}

    @cached_property
    def configurations(self) -> list[Configuration]:
        """All valid configurations, in row order, as tuples of the definition's own Python values."""
        columns = [np.array(_objects(v), dtype=object)[self.table[:, j]] for j, v in enumerate(self.values)]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def _rows(self) -> dict[Configuration, int]:
        return {configuration: row for row, configuration in enumerate(self.configurations)}

    def find(self, configuration: Sequence[Any]) -> int | None:
        """The row of a configuration, or None if it is not valid: illegal, malformed or NaN.

        Values are taken by equality, as Python's dict does: 64.0, numpy.int64(64) and 64 are the same value.
        """
        if type(configuration) is not tuple and not isinstance(configuration, tuple | list | np.ndarray):
            return None
        try:
            return self._rows.get(configuration if type(configuration) is tuple else tuple(configuration))
        except TypeError:  # something unhashable among the values
            return None

    def describe(self, row: int) -> dict[str, Any]:
        """The configuration of a row as {name: value}."""
        return dict(zip(self.names, self[row], strict=True))

    # -- neighbours ---------------------------------------------------------------------------------------------------

    @cached_property
    def neighborhood(self) -> neighbors.Neighborhood:
        """Neighbour look-up over this space's table."""
        return neighbors.Neighborhood(self.table, [len(v) for v in self.values])

    def neighbors(self, row: int, kind: str = "Hamming") -> np.ndarray:
        """Rows of the neighbours of a row, ascending; kinds as in Kernel Tuner, see `metabench.neighbors`."""
        return self.neighborhood.of_row(row, kind)


def _check_parameters(tune_params: Mapping[str, Sequence[Any]]) -> None:
    if not tune_params:
        raise UserError("a search space needs at least one parameter")
    for name, values in tune_params.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise UserError(f"parameter {name!r} needs a non-empty list of values, not {values!r}")
        if len(set(values)) != len(values):
            raise UserError(f"parameter {name!r} has a value twice: {list(values)!r}")
    if math.prod(len(v) for v in tune_params.values()) >= 2**62:
        raise UserError(
            "the Cartesian product of the parameters has 2**62 configurations or more; leave some values out"
        )


def _enumerate(
    names: Sequence[str], values: Sequence[Configuration], restrictions: Sequence[Restriction]
) -> np.ndarray:
    """Value indices of all valid configurations, (n, d), lexicographic."""
    dtype = _smallest_dtype(values)
    columns: list[np.ndarray] = []
    count = 1
    for j, column in enumerate(values):
        columns = [np.repeat(c, len(column)) for c in columns]
        columns.append(np.tile(np.arange(len(column), dtype=dtype), count))
        count *= len(column)
        for r in restrictions:
            if _last_parameter(r, names) == j and count:
                needed = r.names or names[:1]
                keep = r.holds({n: _typed(values[i])[columns[i]] for i, n in enumerate(names[: j + 1]) if n in needed})
                columns = [c[keep] for c in columns]
                count = len(columns[0])
    return np.stack(columns, axis=1)


def _last_parameter(r: Restriction, names: Sequence[str]) -> int:
    return max((names.index(name) for name in r.names), default=0)


def _smallest_dtype(values: Sequence[Sequence[Any]]) -> np.dtype:
    return np.min_scalar_type(max(len(v) for v in values))


def _typed(values: Configuration) -> np.ndarray:
    """Values as an array whose elements turn back into the same Python values."""
    kinds = {type(v) for v in values}
    if kinds == {int} and all(abs(v) < 2**62 for v in values):
        return np.array(values, dtype=np.int64)
    if kinds in ({float}, {bool}):
        return np.array(values)
    return _objects(values)


def _objects(values: Configuration) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _ordered(values: set[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # a parameter that mixes strings and numbers
        return sorted(values, key=lambda v: (type(v).__name__, v))


def _t1_values(values: Any) -> list[Any]:
    """T1 states values as Python text, or as a list."""
    read = expression.constant(values) if isinstance(values, str) else values
    if not isinstance(read, list | tuple | range):
        raise UserError(f"T1 values must be a list, not {values!r}")
    return list(read)


def _t1_default(value: Any) -> Any:
    """Some T1 files wrap the default in a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
