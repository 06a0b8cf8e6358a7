"""Synthesized programs, zoo optimizers and exported names run unchanged as strategies of `kernel_tuner.tune_kernel`."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotune import zoo
from evotune.adapters import KernelTunerStrategy, as_kernel_tuner_strategy, kernel_tuner_names
from evotune.contract import check
from evotune.generators.components import Genome, program
from evotune.generators.components.variation import random_genome
from metabench.errors import UserError
from metabench.recording import Recording, save

kernel_tuner = pytest.importorskip("kernel_tuner")

GENOMES = [
    Genome(walk="threshold", restart="elite"),
    Genome(walk="always", population="onepoint", ageing=True),
    Genome(surrogate="gaussian", scope="space", acquisition="improvement"),
    *(random_genome(random.Random(seed), seed) for seed in range(3)),
]


@pytest.fixture(scope="module")
def cache(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(recording, tmp_path_factory.mktemp("cache") / "one.json")


def tune(strategy: Any, cache: Path, recording: Recording, **options: Any) -> list[dict[str, Any]]:
    """A simulated tuning; Kernel Tuner's own warnings are not ours."""
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            "synthetic", "extern \"C\" float synthetic() { return 0; }", 64, [], recording.space.tune_params,
            restrictions=["x * y <= 512", "unroll <= y"], strategy=strategy, strategy_options=options, lang="C",
            simulation_mode=True, cache=str(cache), quiet=True, verbose=False,
        )  # fmt: skip
    return results


def unique(results: list[dict[str, Any]], recording: Recording) -> set[tuple[Any, ...]]:
    return {tuple(r[name] for name in recording.space.names) for r in results}


@pytest.mark.parametrize("genome", GENOMES, ids=lambda g: "-".join((g.initial, *g.components())))
def test_a_synthesized_program_tunes(genome: Genome, cache: Path, recording: Recording) -> None:
    source = program(genome)
    namespace: dict[str, type] = {}
    exec(compile(source, "program", "exec"), namespace)
    results = tune(as_kernel_tuner_strategy(namespace[check(source)]()), cache, recording, max_fevals=30)
    assert len(unique(results, recording)) == 30


@pytest.mark.parametrize("name", [*zoo.names(), "genetic_algorithm"])
def test_our_names_tune(name: str, cache: Path, recording: Recording) -> None:
    results = tune(as_kernel_tuner_strategy(name), cache, recording, max_fevals=20)
    assert 15 <= len(unique(results, recording)) <= 20


def test_the_whole_space_and_beyond(cache: Path, recording: Recording) -> None:
    size = len(recording.space)
    results = tune(as_kernel_tuner_strategy("random_search"), cache, recording, max_fevals=10 * size)
    assert len(unique(results, recording)) == size


@pytest.mark.parametrize("name", kernel_tuner_names())
def test_a_wrapped_strategy_evaluates_what_kernel_tuners_own_does(name: str, cache: Path, recording: Recording) -> None:
    """On Kernel Tuner's own search space, before any of its faults shows: the same configurations in the same order."""
    if name in ("diff_evo", "random_sample"):
        pytest.skip("their first sample is drawn differently: seeded, and of the whole space")
    own = tune(name, cache, recording, max_fevals=12)
    ours = tune(as_kernel_tuner_strategy(KernelTunerStrategy(name)), cache, recording, max_fevals=12)
    key = lambda r: tuple(r[n] for n in recording.space.names)  # noqa: E731
    firsts = [list(dict.fromkeys(map(key, results))) for results in (own, ours)]
    shared = min(map(len, firsts))
    assert firsts[0][:shared] == firsts[1][:shared] and shared >= 4


def test_an_optimizer_without_the_attribute_is_wrapped_and_a_wrong_name_is_told(
    cache: Path, recording: Recording
) -> None:
    def plain(func: Any, searchspace: Any) -> None:
        for config in searchspace.list[:7]:
            func(config)

    assert len(unique(tune(as_kernel_tuner_strategy(plain), cache, recording), recording)) == 7
    with pytest.raises(UserError, match="genetic_algorithm"):
        as_kernel_tuner_strategy("genetic_algoritm")
    with pytest.raises(UserError, match="it has c1, c2, constraint_aware"):
        KernelTunerStrategy("pso", populationsize=3)
