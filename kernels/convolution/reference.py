"""A 15 x 15 filter in NumPy: what convolution must give, and inputs to try it on."""

from typing import Any

import numpy as np

LANGUAGE = "C"
OUTPUTS = ("out",)
FILTER = 15
SIZE = (480, 1010)  # h, w of the output; the input's rows are then 4,096 bytes, all in the same set of an L1 cache
# float32 rounding of a sum of 225 products of numbers in [-1, 1] stays below 2e-5; a wrong term shows as 1e-2 or more.
RTOL, ATOL = 1e-5, 5e-5


def inputs(size: tuple[int, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Arguments in the kernel's order; `size` is (h, w). The output holds NaN until the kernel writes it."""
    h, w = size or SIZE
    rng = np.random.default_rng(seed)
    return {
        "out": np.full((h, w), np.nan, np.float32),
        "in": rng.uniform(-1, 1, (h + FILTER - 1, w + FILTER - 1)).astype(np.float32),
        "filter": rng.uniform(-1, 1, (FILTER, FILTER)).astype(np.float32),
        "h": np.int32(h),
        "w": np.int32(w),
    }


def expected(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """The right outputs, computed in float64: one shifted image per filter element."""
    image, weights = inputs["in"].astype(np.float64), inputs["filter"].astype(np.float64)
    h, w = int(inputs["h"]), int(inputs["w"])
    total = np.zeros((h, w))
    for i in range(FILTER):
        for j in range(FILTER):
            total += weights[i, j] * image[i : i + h, j : j + w]
    return {"out": total.astype(np.float32)}


def work(inputs: dict[str, Any]) -> float:
    """Floating-point operations of one run."""
    return 2.0 * inputs["h"] * inputs["w"] * FILTER**2
