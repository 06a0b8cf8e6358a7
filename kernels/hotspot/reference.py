"""Hotspot in NumPy: what is right, and a chip to try it on."""

from typing import Any

import numpy as np

LANGUAGE = "C"
OUTPUTS = ("out",)
SIZE = (1024, 1024, 12)  # rows, columns, time steps: arrays of 4 MB, more than a second-level cache holds
# Temperatures are about 330 K, where float32 steps are 3e-5; a dozen steps in another order of operations differ by a few of
# those, and a wrong neighbour by 1e-2 or more.
RTOL, ATOL = 0.0, 5e-4


def inputs(size: tuple[int, int, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Arguments in the kernel's order; `size` is (rows, cols, steps). The output holds NaN until the kernel writes it.

    Cells are those of a chip of 16 x 12 x 0.5 mm of silicon, cut into 1024 x 1024: not square, unlike Rodinia's, so that rows
    mistaken for columns show. The time step is half of the largest stable one.
    """
    rows, cols, steps = size or SIZE
    rng = np.random.default_rng(seed)
    width, height, thickness, conductivity = 0.016 / 1024, 0.012 / 1024, 0.0005, 100.0
    rx = width / (2.0 * conductivity * thickness * height)
    ry = height / (2.0 * conductivity * thickness * width)
    rz = thickness / (conductivity * width * height)
    constants = {"rx": rx, "ry": ry, "rz": rz, "ambient": 80.0, "step_div_cap": 0.25 / (1 / rx + 1 / ry)}
    return {
        "out": np.full((rows, cols), np.nan, np.float32),
        "temperature": rng.uniform(323, 341, (rows, cols)).astype(np.float32),
        "power": rng.uniform(0, 1, (rows, cols)).astype(np.float32),
        "rows": np.int32(rows),
        "cols": np.int32(cols),
        "steps": np.int32(steps),
        **{name: np.float32(value) for name, value in constants.items()},
    }


def expected(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """The right outputs, computed in float64."""
    t, power = inputs["temperature"].astype(np.float64), inputs["power"].astype(np.float64)
    rx, ry, rz, ambient, step = (float(inputs[k]) for k in ("rx", "ry", "rz", "ambient", "step_div_cap"))
    for _ in range(int(inputs["steps"])):
        near = np.pad(t, 1, mode="edge")
        vertical = near[:-2, 1:-1] + near[2:, 1:-1] - 2 * t
        horizontal = near[1:-1, :-2] + near[1:-1, 2:] - 2 * t
        t = t + step * (power + vertical / ry + horizontal / rx + (ambient - t) / rz)
    return {"out": t.astype(np.float32)}


def work(inputs: dict[str, Any]) -> float:
    """Floating-point operations of the formula, 15 a cell and step."""
    return 15.0 * inputs["rows"] * inputs["cols"] * inputs["steps"]
