"""Small kernels to measure: one whose configurations fail in every way there is, and a way to make others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metabench.kernel import Kernel

# Without headers, which take most of the time that so small a source takes to compile.
FAULTY = """
#ifndef MODE
#define MODE 0
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#if MODE == 1
#error this configuration is not meant to compile
#endif
extern "C" int raise(int), puts(const char *);
extern "C" float faulty(float *y, const float *x, int n) {
    if (MODE == 3) raise(11);
    if (MODE == 4) for (volatile int i = 0;; i = i) {}
    if (MODE == 5) return __builtin_nanf("");
    if (MODE == 7) puts("a kernel that talks");
    for (int i = 0; i < n; ++i) y[i] = 2 * x[i] + (MODE == 2 && i == n - 1 ? 0.01f : 0);
    if (MODE == 6) y[n / 2] = y[n / 2 - 1];
    return 1.0f / UNROLL;
}
"""

REFERENCE = """
import numpy as np
OUTPUTS, RTOL, ATOL, LANGUAGE = ("y",), 1e-6, 1e-6, "C"
def inputs(size=None, seed=0):
    n = size or 64
    x = np.random.default_rng(seed).uniform(1, 2, n).astype(np.float32)
    return {"y": np.full(n, np.nan, np.float32), "x": x, "n": np.int32(n)}
def expected(inputs):
    return {"y": 2 * inputs["x"]}
def work(inputs):
    return 1.0 * inputs["n"]
"""


@pytest.fixture
def reference() -> str:
    """reference.py of a kernel (y, x, n) that doubles x."""
    return REFERENCE


MakeKernel = Callable[..., Kernel]


@pytest.fixture
def make_kernel(tmp_path: Path) -> MakeKernel:
    """Writes a kernel folder: make_kernel(name, source, reference, {parameter: values}, restrictions, **specification)."""

    def make(
        name: str,
        source: str,
        reference: str,
        parameters: dict[str, list[Any]],
        conditions: tuple[str, ...] = (),
        **specification: Any,
    ) -> Kernel:
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.cpp").write_text(source)
        (folder / "reference.py").write_text(reference)
        rows = [{"Name": n, "Type": "int", "Values": str(v), "Default": v[0]} for n, v in parameters.items()]
        space = {"TuningParameters": rows, "Conditions": [{"Expression": c, "Parameters": []} for c in conditions]}
        flags = {"CompilerOptions": ["-O0"], "ProblemSize": [64]}
        (folder / "space.json").write_text(
            json.dumps({"ConfigurationSpace": space, "KernelSpecification": {**flags, **specification}})
        )
        return Kernel(name, folder)

    return make


@pytest.fixture
def faulty(make_kernel: MakeKernel) -> Callable[..., Kernel]:
    """The kernel of all failures: faulty(modes, unrolls). Its time is 1/UNROLL ms."""

    def make(modes: list[int], unrolls: list[int] | None = None) -> Kernel:
        return make_kernel("faulty", FAULTY, REFERENCE, {"MODE": modes, "UNROLL": unrolls or [1]})

    return make


@pytest.fixture
def quick() -> dict[str, Any]:
    """Options for a quick measurement."""
    return {"repeats": 2, "run_seconds": 1.0, "build_seconds": 30.0}
