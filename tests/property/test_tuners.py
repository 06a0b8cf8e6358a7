"""Every optimizer that can be named, against every hazard: it ends, never overspends, and a seed decides its trace."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

from evotune.generators.components import Genome, program
from evotune.generators.components.variation import random_genome
from evotune.optimizers import provider
from metabench.recording import CORRECT, Recording
from metabench.replay import Limits, Trace, replay
from metabench.space import Space

SLOW = ("basinhopping", "dual_annealing")  # seconds where others take milliseconds
ALIASES = ("random", "ga", "sa", "de")
NAMES = [name for name in provider.names() if name not in ALIASES]
SYNTHESIZED = {f"synthesized-{seed}": seed for seed in range(8)}


def recorded(space: Space, seed: int = 0, failing: float = 0.0, maximize: bool = False) -> Recording:
    """Values that depend on every parameter, some configurations failing."""
    rng = np.random.default_rng(seed)
    values = 1.0 + np.abs(space.table - 0.4 * space.table.max(axis=0)).sum(axis=1) + 0.1 * rng.random(len(space))
    status = np.full(len(space), CORRECT, dtype=object)
    broken = rng.random(len(space)) < failing
    broken[np.argmin(values)] = False  # a recording has at least one valid configuration
    values[broken], status[broken] = np.nan, "runtime"
    return Recording(
        "hazard", str(seed), space, 100 / values if maximize else values, np.ones(len(space)), status, maximize=maximize
    )


HAZARDS: dict[str, Recording] = {
    "two values": recorded(Space.from_dict({f"p{i}": [0, 1] for i in range(5)})),
    "one value": recorded(Space.from_dict({"a": [1], "b": [1, 2, 4, 8], "c": [3], "d": [1, 2, 3]})),
    "isolated points": recorded(Space.from_dict({"a": list(range(5)), "b": list(range(5))}, "(a + b) % 3 == 0 and a != b")),
    "strings and booleans": recorded(Space.from_dict({"s": ["a", "b", "c"], "t": [True, False], "u": [0.5, 1.5, 2.5]})),
    "95 % failures": recorded(Space.from_dict({"a": list(range(8)), "b": list(range(8))}), failing=0.95),
    "maximised": recorded(Space.from_dict({"a": [1, 2, 4, 8, 16], "b": [1, 2, 3, 4], "c": [1, 2]}), maximize=True),
    "one configuration": recorded(Space.from_dict({"a": [1, 2], "b": [1, 2]}, "a == 2 and b == 1")),
    "two configurations": recorded(Space.from_dict({"a": [1, 2], "b": [1]})),
}  # fmt: skip


@functools.cache
def synthesized(seed: int) -> type:
    """A random program of the components generator."""
    import random

    namespace: dict[str, type] = {}
    exec(compile(program(random_genome(random.Random(seed), seed)), f"synthesized-{seed}", "exec"), namespace)
    return next(v for v in reversed(namespace.values()) if isinstance(v, type) and v.__name__ not in ("OptAlg", "Any"))


def run(name: str, recording: Recording, limits: Limits, seed: int = 3) -> Trace:
    factory = synthesized(SYNTHESIZED[name]) if name in SYNTHESIZED else provider.make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return replay(factory(), recording, limits, seed)


@pytest.mark.parametrize("hazard", HAZARDS)
@pytest.mark.parametrize("name", [n for n in [*NAMES, *SYNTHESIZED] if n not in SLOW])
def test_it_ends_within_its_budget_and_raises_nothing(name: str, hazard: str) -> None:
    recording = HAZARDS[hazard]
    size = len(recording.space)
    for evaluations in (1, 2, 7, size, 3 * size):
        trace = run(name, recording, Limits(evaluations=evaluations))
        assert trace.error == "", f"{name} with {evaluations} evaluations: {trace.error}"
        assert 1 <= len(trace.rows) <= min(evaluations, size)
        assert len(set(trace.rows.tolist())) == len(trace.rows)


@pytest.mark.parametrize("name", SLOW)
def test_the_slow_ones_too_on_one_space(name: str) -> None:
    for evaluations in (1, 7):
        trace = run(name, HAZARDS["isolated points"], Limits(evaluations=evaluations))
        assert trace.error == "" and 1 <= len(trace.rows) <= evaluations


@pytest.mark.parametrize("name", [*NAMES, *SYNTHESIZED])
def test_the_same_seed_gives_the_same_trace(name: str) -> None:
    recording = HAZARDS["95 % failures"]
    one, two, other = (run(name, recording, Limits(seconds=15.0), seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.times, two.times)
    assert one.rows.tolist() != other.rows.tolist()


@pytest.mark.parametrize("name", [n for n in [*NAMES, *SYNTHESIZED] if n not in SLOW])
def test_nothing_that_runs(name: str) -> None:
    """All that it can reach fails: the costs are all infinite."""
    space = Space.from_dict({"a": list(range(6)), "b": list(range(6)), "c": [0, 1]})
    recording = recorded(space, failing=1.0)
    recording.losses[np.isfinite(recording.losses)] = np.inf  # the cached array that answers are taken from
    trace = run(name, recording, Limits(evaluations=20))
    assert trace.error == "" and 1 <= len(trace.rows) <= 20


def test_a_name_and_a_file_make_the_same_optimizer(tmp_path) -> None:  # type: ignore[no-untyped-def]
    genome = Genome(walk="annealing")
    (tmp_path / "mine.py").write_text(program(genome))
    factory = provider.make(str(tmp_path / "mine.py"))
    trace = replay(factory(), HAZARDS["maximised"], Limits(evaluations=10), 0)
    assert len(trace.rows) == 10
