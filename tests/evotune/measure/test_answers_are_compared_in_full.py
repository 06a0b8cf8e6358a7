"""One wrong value among many, a value that was never written, a wrong shape: each is seen, and said where."""

from __future__ import annotations

import numpy as np
import pytest

from evotune.measure.check import differences

RIGHT = {"y": np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)}


def test_equal_within_tolerance() -> None:
    assert differences({"y": RIGHT["y"] * np.float32(1 + 1e-6)}, RIGHT, rtol=1e-5, atol=0) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1.0002])
def test_one_wrong_value(value: float) -> None:
    got = RIGHT["y"].copy()
    got[2, 1] = value
    said = differences({"y": got}, RIGHT, rtol=1e-5, atol=0)
    assert said is not None
    assert said.startswith("y: 1 of 12 values are wrong, the worst at (2, 1): ")


def test_the_worst_is_named() -> None:
    got = RIGHT["y"].copy()
    got[0, 0], got[1, 1] = 1.1, 9
    assert "2 of 12 values are wrong, the worst at (1, 1): 9.0" in str(differences({"y": got}, RIGHT, 1e-5, 0))


def test_another_shape() -> None:
    assert differences({"y": RIGHT["y"].ravel()}, RIGHT, 1e-5, 0) == "y has shape (12,) instead of (3, 4)"


def test_integers() -> None:
    right = {"n": np.array([1, 2**31 - 1], np.int32)}
    assert differences({"n": np.array([1, 2**31 - 1], np.int32)}, right, 0, 0) is None
    assert "1 of 2" in str(differences({"n": np.array([1, -(2**31)], np.int32)}, right, 0, 0))
