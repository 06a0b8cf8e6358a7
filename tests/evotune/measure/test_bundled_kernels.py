"""The kernels that come along: right at sizes that no tile divides, defaults alike in space and source, spaces as intended."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from kernel_tuner.searchspace import Searchspace

from evotune.measure.pool import Pool
from evotune.measure.task import Task
from metabench import kernel as kernels
from metabench.space import Space

ODD_SIZES: dict[str, list[Any]] = {
    "gemm": [(1, 1, 1), (65, 103, 390)],
    "convolution": [(1, 1), (9, 133)],
    "hotspot": [(1, 1, 1), (67, 300, 7)],
    "dedispersion": [(1, 1, 1), (37, 9, 601)],
    "lopt_small_fc_apply": [((1, 1),), ((7,), (67, 300), (5, 3, 9, 11), (1031, 3))],
}
SIZES = {"gemm": 583, "convolution": 594, "hotspot": 546, "dedispersion": 504, "lopt_small_fc_apply": 304}


@pytest.mark.parametrize("name", ODD_SIZES)
def test_it_is_right_at_odd_sizes(name: str) -> None:
    kernel = kernels.find(name)
    space = Space.from_t1(kernel.space_definition())
    rows = random.Random(0).sample(range(len(space)), 2)
    for size in ODD_SIZES[name]:
        with Pool(Task.of(kernel, "native", size=size, repeats=1)) as pool:
            outcomes = dict(pool.measure(space.describe(row) for row in rows))
        assert [outcomes[i].error for i in range(2)] == [""] * 2


@pytest.mark.parametrize("name", ODD_SIZES)
def test_its_space_is_kernel_tuners(name: str) -> None:
    space = Space.from_t1(kernels.find(name).space_definition())
    theirs = Searchspace(space.tune_params, [r.text for r in space.restrictions], 10**9)
    assert len(space) == SIZES[name]
    assert sorted(theirs.list) == sorted(space.configurations)


@pytest.mark.parametrize("name", ODD_SIZES)
def test_the_default_is_the_sources(name: str) -> None:
    kernel = kernels.find(name)
    space = Space.from_t1(kernel.space_definition())
    text = "\n".join(path.read_text() for path in kernels.with_headers(kernel.source(".cpp")))
    macros = re.findall(r"#define (\w+) (\d+)", text)  # some have another default where vectors are wider
    assert {(name, str(value)) for name, value in space.defaults.items()} <= {*macros}
    assert space.find(tuple(space.defaults.values())) is not None
