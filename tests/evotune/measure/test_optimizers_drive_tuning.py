"""Both kinds of optimizer tune for real: anything shaped like Kernel Tuner's OptAlg, and Kernel Tuner's strategies by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kernel_tuner.file_utils import output_file_schema
from kernel_tuner.strategies.wrapper import OptAlg

from evotune.measure import tune, tuned
from metabench.kernel import Kernel


class Sampler(OptAlg):
    """Random search in Kernel Tuner's form."""

    def __call__(self, func: Any, searchspace: Any) -> Any:
        values = [(func(point), point) for point in searchspace.get_random_sample(50)]
        return min(values)[::-1]


@pytest.mark.parametrize("optimizer", [Sampler(), "genetic_algorithm"], ids=["OptAlg", "genetic_algorithm"])
def test_it_finds_the_fastest(optimizer: Any, faulty: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel = faulty([0, 1, 2], [1, 2, 4, 8, *range(10, 27)])
    found = tune(kernel, optimizer, evaluations=12, seed=3, repeats=2, rounds=5, finalists=1, folder=tmp_path / "out")
    assert found.evaluations == 12
    assert found.failures.keys() <= {"compile", "verification"} and found.failures
    fastest = min((o for o in found.outcomes if o.time is not None), key=lambda o: o.time or 0.0)
    assert found.configuration == fastest.configuration
    unroll = found.configuration["UNROLL"]
    assert unroll > 1
    assert found.default_time == pytest.approx(1.0)
    assert found.speedup is not None
    assert found.speedup == pytest.approx((unroll, unroll, unroll))
    entry = tuned.read(found.files["tuned"])[0]
    assert entry == found.entry() and entry["tuner"] in ("Sampler", "genetic_algorithm")
    _check_t4(found.files["t4"], found.evaluations)


def _check_t4(path: Path, evaluations: int) -> None:
    t4 = json.loads(path.read_text())
    jsonschema.validate(t4, output_file_schema("results")[1])
    assert len(t4["results"]) == evaluations
    for result in t4["results"]:
        mode = result["configuration"]["MODE"]
        assert result["invalidity"] == ("correct", "compile", "correctness")[mode]
        assert result["correctness"] == (mode != 2)
        assert any(m["name"] == "time" for m in result["measurements"]) == (mode == 0)


def test_a_seed_decides_what_is_asked_for(faulty: Callable[..., Kernel]) -> None:
    kernel = faulty([0, 2], [1, 2, 4, 8, 16, 32])

    def asked(seed: int) -> list[dict[str, Any]]:
        found = tune(kernel, "random_sample", evaluations=4, seed=seed, repeats=1, finalists=0)
        return [o.configuration for o in found.outcomes]

    assert asked(1) == asked(1) != asked(2)


def test_an_entry_replaces_only_its_own_kind(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    base = {
        "kernel": "k",
        "device": "d",
        "backend": "cpu",
        "shape_class": "any",
        "dtype": "float32",
        "configuration": {},
    }
    tuned.keep({**base, "time_ms": 3.0}, path)
    tuned.keep({**base, "dtype": "float16", "time_ms": 2.0}, path)
    tuned.keep({**base, "time_ms": 1.0}, path)
    assert [(e["dtype"], e["time_ms"]) for e in tuned.read(path)] == [("float16", 2.0), ("float32", 1.0)]
