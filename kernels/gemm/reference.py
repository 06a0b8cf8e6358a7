"""C = A B in NumPy: what gemm must give, and inputs to try it on."""

from typing import Any

import numpy as np

LANGUAGE = "C"
OUTPUTS = ("c",)
SIZE = (
    480,
    768,
    384,
)  # m, n, k: B's rows of 3,072 bytes fall into 4 of the 64 sets of an L1 cache, so that packing matters
# float32 rounding of a sum of k products of numbers in [-1, 1] stays below 1e-5 at k = 384; a wrong term shows as 1e-2 or more.
RTOL, ATOL = 1e-5, 5e-5


def inputs(size: tuple[int, int, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Arguments in the kernel's order; `size` is (m, n, k). The output holds NaN until the kernel writes it."""
    m, n, k = size or SIZE
    rng = np.random.default_rng(seed)
    return {
        "c": np.full((m, n), np.nan, np.float32),
        "a": rng.uniform(-1, 1, (m, k)).astype(np.float32),
        "b": rng.uniform(-1, 1, (k, n)).astype(np.float32),
        "m": np.int32(m),
        "n": np.int32(n),
        "k": np.int32(k),
    }


def expected(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """The right outputs, computed in float64."""
    return {"c": (inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)).astype(np.float32)}


def work(inputs: dict[str, Any]) -> float:
    """Floating-point operations of one run."""
    return 2.0 * inputs["m"] * inputs["n"] * inputs["k"]
