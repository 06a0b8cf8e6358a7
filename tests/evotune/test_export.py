"""An exported program stands alone: the same traces, a strategy of Kernel Tuner, and where it comes from."""

from __future__ import annotations

import runpy
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from evotune.evolve import EvolutionResult, evolve
from evotune.export import export
from evotune.generators.components import ComponentsGenerator
from evotune.optimizers import provider
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits, replay


@pytest.fixture(scope="module")
def run(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    settings = {"parents": 2, "offspring": 2, "calls": 4, "repeats": 1, "finalists": 1, "confirmations": 2}
    return evolve(ComponentsGenerator(4), [recording], tmp_path_factory.mktemp("run"), seed=4, **settings)


def test_the_file_gives_the_same_traces_as_the_candidate(
    run: EvolutionResult, recording: Recording, tmp_path: Path
) -> None:
    path = export(run.folder, tmp_path / "mine.py")
    raw = tmp_path / "raw.py"
    raw.write_text(run.source or "")
    one, two = (replay(provider.make(str(p))(), recording, Limits(evaluations=40), 5) for p in (path, raw))
    np.testing.assert_array_equal(one.rows, two.rows)


def test_it_says_where_it_comes_from(run: EvolutionResult, tmp_path: Path) -> None:
    factory = provider.make(str(export(run.folder, tmp_path / "mine.py")))
    told = factory.provenance
    assert (told["kind"], told["model"], told["spaces"], told["seed"]) == (
        "evolved",
        "components",
        ["synthetic/one"],
        4,
    )
    assert (told["repeats"], told["fresh_seeds"]) == (2, True) and len(told["prompt_sha256"]) == 64
    assert told["scores"]["synthetic/one"] == pytest.approx(run.score, abs=1e-4)
    assert (tmp_path / "mine.py").read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n")


def test_it_is_a_strategy_of_kernel_tuner(run: EvolutionResult, tmp_path: Path) -> None:
    pytest.importorskip("kernel_tuner")
    members = runpy.run_path(str(export(run.folder, tmp_path / "mine.py")))
    strategy = members["strategy"]()
    assert callable(strategy.tune) and type(strategy.optimizer).__name__ == run.name


def test_an_interrupted_run_has_its_best_so_far_exported(run: EvolutionResult, tmp_path: Path) -> None:
    with sqlite3.connect(run.archive) as source, sqlite3.connect(tmp_path / "archive.sqlite") as target:
        source.backup(target)
    source.close()
    target.close()
    told = provider.make(str(export(tmp_path, tmp_path / "best_so_far.py"))).provenance
    assert told["fresh_seeds"] is False


def test_what_cannot_be_exported_is_told(run: EvolutionResult, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no archive"):
        export(tmp_path, tmp_path / "x.py")
    with pytest.raises(UserError, match=r"does not end in \.py"):
        export(run.folder, tmp_path / "x.txt")
