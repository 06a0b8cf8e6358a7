"""What keeps tuning from beginning, a compiler that is not there or a wrong number: said at once, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotune.measure import record, tune
from metabench.errors import UserError
from metabench.kernel import Kernel


def test_it_says_how_to_get_one(faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel = faulty([0])
    with pytest.raises(UserError, match=r"no C\+\+ compiler 'g\+\+-none' found.*apt install g\+\+"):
        record(kernel, "native", tmp_path / "out.json", compiler="g++-none")
    with pytest.raises(UserError, match=r"no C\+\+ compiler 'g\+\+-none' found"):
        tune(kernel, "random_sample", evaluations=1, compiler="g++-none")
    assert not list(tmp_path.glob("out*"))


def test_an_unknown_device_lists_those_there_are(faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown device 'avx3'; allowed: avx2, avx512, native, sse42"):
        record(faulty([0]), "avx3", tmp_path / "out.json")


def test_a_budget_is_asked_for(faulty: Callable[..., Kernel]) -> None:
    with pytest.raises(UserError, match="needs a budget"):
        tune(faulty([0]), "random_sample")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"evaluations": "two"}, "a budget in evaluations must be a whole number of at least 1, not 'two'"),
        ({"evaluations": 0}, "a budget in evaluations must be a whole number of at least 1, not 0"),
        ({"seconds": -1.0}, "a budget in seconds must be a positive number, not -1.0"),
        ({"seconds": "ten"}, "a budget in seconds must be a positive number, not 'ten'"),
        ({"seed": "x"}, "seed must be a whole number of at least 0, not 'x'"),
        ({"finalists": -1}, "finalists must be a whole number of at least 0, not -1"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, not 0"),
        ({"rounds": True}, "rounds must be a whole number of at least 1, not True"),
    ],
)
def test_numbers_are_checked_before_anything_is_built(
    wrong: dict[str, Any], message: str, faulty: Callable[..., Kernel]
) -> None:
    with pytest.raises(UserError, match=message):
        tune(faulty([0]), "random_sample", **{"evaluations": 2, **wrong}, progress=lambda *_: pytest.fail("measured"))


def test_an_unknown_optimizer_lists_those_there_are(faulty: Callable[..., Kernel]) -> None:
    with pytest.raises(UserError, match=r"unknown optimizer 'genetic_algoritm'.*Did you mean 'genetic_algorithm'"):
        tune(faulty([0, 2]), "genetic_algoritm", evaluations=2, repeats=1)
