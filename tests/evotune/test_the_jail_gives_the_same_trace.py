"""A run in the jail and a run in this process give the same trace for a seed: only what can be reached differs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from evotune.contract import check
from evotune.evaluate import Evaluator
from evotune.generators.components import Genome, program
from evotune.generators.components.variation import random_genome
from evotune.jail import Jail, JailLimits
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits, replay

GENOMES = [
    Genome(walk="annealing"),
    Genome(population="differential", surrogate="ridge", acquisition="bound"),
    Genome(surrogate="gaussian", scope="space", acquisition="improvement"),
    *(random_genome(random.Random(seed), seed) for seed in range(3)),
]
USES_SEARCHSPACE = """
import random, numpy as np
class Mixed:
    def __call__(self, func, searchspace):
        config = searchspace.get_random_sample(1)[0]
        while True:
            near = searchspace.get_neighbors(config, neighbor_method="Hamming")
            config = random.choice(near) if np.random.random() < 0.7 else searchspace.get_random_sample(1)[0]
            func(list(config))
"""


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    with Jail() as jail:
        yield jail


@pytest.mark.parametrize("source", [USES_SEARCHSPACE, *map(program, GENOMES)])
@pytest.mark.parametrize("limits", [Limits(evaluations=40), Limits(seconds=20.0)])
def test_same_seed_same_trace_inside_and_outside(jail: Jail, recording: Recording, source: str, limits: Limits) -> None:
    name = check(source)
    namespace: dict[str, type] = {}
    exec(compile(source, name, "exec"), namespace)
    outside = replay(namespace[name](), recording, limits, seed=11)
    outcome = jail.run(source, name, recording, limits, seed=11)
    assert outcome.failure is None and not outside.error
    np.testing.assert_array_equal(outcome.trace.rows, outside.rows)
    np.testing.assert_array_equal(outcome.trace.times, outside.times)
    assert (outcome.trace.calls, outcome.trace.illegal, outcome.trace.ended) == (
        outside.calls,
        outside.illegal,
        outside.ended,
    )


def test_hashes_do_not_vary_between_runs(jail: Jail, recording: Recording) -> None:
    source = "class H:\n    def __call__(self, func, searchspace):\n        [func(c) for c in set(searchspace.list)]\n"
    with Jail() as other:
        traces = [j.run(source, "H", recording, Limits(evaluations=30), seed=0).trace.rows for j in (jail, other)]
    np.testing.assert_array_equal(*traces)


def test_the_jail_goes_on_when_its_serving_process_was_killed(recording: Recording) -> None:
    with Jail() as jail:
        first = jail.run(USES_SEARCHSPACE, "Mixed", recording, Limits(evaluations=5), seed=0)
        jail._server._process.kill()  # type: ignore[union-attr]
        lost = jail.run(USES_SEARCHSPACE, "Mixed", recording, Limits(evaluations=5), seed=0)
        again = jail.run(USES_SEARCHSPACE, "Mixed", recording, Limits(evaluations=5), seed=0)
    assert first.failure is None and lost.failure is not None and again.failure is None


def test_what_is_not_enforced_is_told_once_at_the_start(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    with Jail() as jail:
        known = {"subreaper", "network", "isolation", "unprivileged", "system calls"}
        assert set(jail.protection()) == known
    nothing = dict.fromkeys(known, False)
    monkeypatch.setattr(Jail, "protection", lambda self: nothing)
    with Evaluator([recording]) as evaluator, pytest.warns(UserWarning, match="the network; your files and processes"):
        evaluator.prepare()


@pytest.mark.parametrize("name", ["cpu_seconds", "wall_seconds", "memory_bytes"])
def test_limits_that_allow_nothing_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=name):
        JailLimits(**{name: 0})
