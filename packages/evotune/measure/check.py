"""Is the answer right? Every value of every output is compared; an output that was not written still holds its poison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def differences(
    got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], rtol: float, atol: float
) -> str | None:
    """None if all outputs are within |got - expected| <= atol + rtol |expected|, else a sentence about the worst value."""
    for name, right in expected.items():
        value = np.asarray(got[name])
        if value.shape != np.shape(right):
            return f"{name} has shape {value.shape} instead of {np.shape(right)}"
        wrong = ~np.isclose(value, right, rtol=rtol, atol=atol)
        if wrong.any():
            return f"{name}: {wrong.sum()} of {wrong.size} values are wrong, {_worst(value, np.asarray(right), wrong)}"
    return None


def _worst(value: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> str:
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where(wrong, np.abs(value.astype(np.float64) - right.astype(np.float64)), -1.0)
    place = np.unravel_index(np.argmax(np.where(np.isnan(distance), np.inf, distance)), wrong.shape)
    where = "" if not place else f" at {tuple(int(i) for i in place)}"
    return f"the worst{where}: {value[place]} instead of {right[place]}"
