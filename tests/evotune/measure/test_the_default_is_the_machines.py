"""The default that tuning compares with is what the source takes with the flags at hand, not one for all machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evotune.measure import Task, tune
from evotune.measure.default import of_source
from metabench.kernel import Kernel, find
from metabench.space import Space

CHOOSY = """
#ifndef UNROLL
#ifdef WIDE
#define UNROLL 4
#else
#define UNROLL 2
#endif
#endif
extern "C" float choosy(float *y, const float *x, int n) {
    for (int i = 0; i < n; ++i) y[i] = 2 * x[i];
    return 1.0f / UNROLL;
}
"""
Make = Callable[..., Kernel]


def choosy(make_kernel: Make, reference: str, source: str = CHOOSY) -> Kernel:
    return make_kernel("choosy", source, reference, {"UNROLL": [1, 2, 4], "OTHER": [7, 8]})


@pytest.mark.parametrize(("flags", "unroll"), [(("-O0",), 2), (("-O0", "-DWIDE"), 4)])
def test_it_is_measured_first(flags: tuple[str, ...], unroll: int, make_kernel: Make, reference: str) -> None:
    """space.json says 1 and 7; OTHER is no macro of the source."""
    found = tune(choosy(make_kernel, reference), "brute_force", evaluations=3, flags=flags, repeats=1, finalists=0)
    assert found.outcomes[0].configuration == {"UNROLL": unroll, "OTHER": 7}
    assert found.default_time == pytest.approx(1.0 / unroll)


@pytest.mark.parametrize(
    "source",
    [
        "#define UNROLL 3\n",
        "#define UNROLL (1 + 1)\n",
        "#define A 2\n#define UNROLL A\n",
        "#error no\n",
        "#define UNROLL\n",
    ],
)
def test_what_the_source_does_not_say_plainly_is_left_to_the_file(
    source: str, make_kernel: Make, reference: str
) -> None:
    task = Task.of(choosy(make_kernel, reference, source), flags=("-O0",))
    assert of_source(task, Space.from_t1(task.kernel.space_definition())) == {}


@pytest.mark.parametrize(("device", "vector"), [("avx512", 16), ("avx2", 8)])
def test_the_step_kernel_takes_wide_vectors_where_there_are_some(device: str, vector: int) -> None:
    task = Task.of(find("lopt_small_fc_apply"), device)
    space = Space.from_t1(task.kernel.space_definition())
    expected: dict[str, Any] = {**space.defaults, "VEC": vector}
    assert of_source(task, space) == expected
