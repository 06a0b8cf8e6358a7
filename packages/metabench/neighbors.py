"""Neighbours of a configuration, the three kinds of Kernel Tuner, without scanning the space where that can be avoided.

    Hamming             exactly one parameter has another value
    strictly-adjacent   every parameter's value index differs by at most 1
    adjacent            every parameter's value lies between the nearest values, on either side, that any valid configuration has

A row's key is its value indices read as a number in mixed radix. Keys ascend with the rows, so the Hamming neighbours (some tens
of candidate keys) are found by bisection in 5-20 us on any space. The other two kinds are boxes of value indices; their members
can number thousands, so these are scanned, column by column, each on what the last one left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import choose

KINDS = ("Hamming", "adjacent", "strictly-adjacent")
_CACHED_ROWS = 100_000  # about 30 MB of Hamming neighbours


class Neighborhood:
    """Neighbour look-up over a table of value indices.

    Args:
        table: (n, d) value indices in lexicographic order.
        cardinalities: number of values of each parameter.
    """

    def __init__(self, table: np.ndarray, cardinalities: Sequence[int]) -> None:
        self._table = table
        self._columns = [np.ascontiguousarray(table[:, j]) for j in range(table.shape[1])]
        self._cardinalities = np.array(cardinalities, dtype=np.int64)
        self._radices = np.concatenate([np.cumprod(self._cardinalities[:0:-1])[::-1], [1]]).astype(np.int64)
        self._keys = table.astype(np.int64) @ self._radices
        # One candidate per parameter and value: its offset from a key without that parameter, and which parameter it is.
        self._offsets = np.concatenate([np.arange(c) * r for c, r in zip(cardinalities, self._radices, strict=True)])
        self._varied = np.repeat(np.arange(len(self._cardinalities)), self._cardinalities)
        self._bounded_keys = np.append(
            self._keys, -1
        )  # so that a search past the last key finds no match, not an error
        self._present = [np.unique(column).astype(np.int64) for column in self._columns]
        self._cache: dict[tuple[int, str], np.ndarray] = {}

    def of_row(self, row: int, kind: str = "Hamming") -> np.ndarray:
        """Rows of the neighbours of a valid configuration, ascending, without itself; read-only."""
        key = (int(row), kind)
        found = self._cache.get(key)
        if found is None:
            found = self.of_indices(self._table[row].astype(np.int64), kind)
            found.setflags(write=False)
            if kind == "Hamming" and len(self._cache) < _CACHED_ROWS:
                self._cache[key] = found
        return found

    def of_indices(self, indices: np.ndarray, kind: str = "Hamming") -> np.ndarray:
        """Rows of the neighbours of any point, valid or not, given by its value indices, int64 (d,)."""
        if kind not in KINDS:
            choose(kind, KINDS, "kind of neighbours")  # raises
        if kind == "Hamming":
            return self._hamming(indices)
        low, high = (indices - 1, indices + 1) if kind == "strictly-adjacent" else self._nearest(indices)
        rows = self._box(low, high)
        return rows[self._keys[rows] != indices @ self._radices]

    def _hamming(self, indices: np.ndarray) -> np.ndarray:
        own = indices * self._radices
        key = int(own.sum())
        candidates = self._offsets + (key - own)[self._varied]
        places = self._keys.searchsorted(candidates)
        found = places[(self._bounded_keys[places] == candidates) & (candidates != key)]
        found.sort()
        return found

    def _nearest(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the adjacent box: for each parameter the nearest present value index below and above."""
        low, high = np.zeros_like(indices), self._cardinalities - 1
        for j, (index, present) in enumerate(zip(indices, self._present, strict=True)):
            below, above = np.searchsorted(present, index), np.searchsorted(present, index, side="right")
            low[j] = present[below - 1] if below > 0 else 0
            high[j] = present[above] if above < len(present) else self._cardinalities[j] - 1
        return low, high

    def _box(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Rows whose every value index lies in [low, high]."""
        # The first parameter is the slowest: its interval is one slice.
        start, stop = np.searchsorted(self._columns[0], [max(low[0], 0), high[0] + 1])
        rows = np.arange(start, stop)
        for column, lowest, highest, cardinality in zip(
            self._columns[1:], low[1:], high[1:], self._cardinalities[1:], strict=True
        ):
            if lowest <= 0 and highest >= cardinality - 1:
                continue
            part = column[start:stop] if len(rows) == stop - start else column[rows]
            rows = rows[(part >= max(lowest, 0)) & (part <= highest)]
        return rows
