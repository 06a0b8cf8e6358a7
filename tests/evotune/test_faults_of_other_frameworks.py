"""Faults reported of other evolution frameworks (L2, L4, L10, L12 of the cases that this project collects), each by its input."""

from __future__ import annotations

import copy
import hashlib
import logging
import pickle
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from evotune.evolve import evolve
from evotune.generators import Generator, Reply
from evotune.generators.base import Messages
from evotune.generators.components import ComponentsGenerator
from evotune.loop import Loop
from evotune.prompts import Prompts
from evotune.settings import Settings
from metabench.recording import Recording

SMALL = {"parents": 2, "offspring": 4, "calls": 6, "repeats": 1, "finalists": 1, "confirmations": 1}


def test_l2_niches_are_filled_and_not_only_the_first(recording: Recording, tmp_path: Path, monkeypatch) -> None:
    """There are no islands here; what keeps programs apart is MAP-Elites, whose cells must not all be one."""
    loops: list[Loop] = []
    run = Loop.run
    monkeypatch.setattr(Loop, "run", lambda self: loops.append(self) or run(self))
    settings = {**SMALL, "parents": 4, "offspring": 8, "calls": 36, "niching": "map_elites"}
    result = evolve(ComponentsGenerator(3), [recording], tmp_path, seed=3, **settings)
    cells = loops[0].map_elites_archive
    assert len(cells) >= 3, "36 programs of six families fall into more than one cell"
    generations = Counter(c.generation for c in result.history)
    assert generations == {0: 4, 1: 8, 2: 8, 3: 8, 4: 8}, "the counter moves with every generation, none is lost"


def test_l4_a_run_in_two_parts_is_the_run_in_one(recording: Recording, tmp_path: Path) -> None:
    """Half the calls, then the rest: the same ids, scores and draws, and the first programs are there once."""
    whole = evolve(ComponentsGenerator(1), [recording], tmp_path / "whole", seed=1, **SMALL)
    evolve(ComponentsGenerator(1), [recording], tmp_path / "parts", seed=1, **SMALL)
    with sqlite3.connect(tmp_path / "parts" / "archive.sqlite") as archive:
        archive.execute("DELETE FROM candidate WHERE call >= 3")
    archive.close()
    parts = evolve(ComponentsGenerator(1), [recording], tmp_path / "parts", seed=1, resume=True, **SMALL)
    told = [
        [(c.call, c.generation, c.operator, c.parents, c.score, c.source) for c in r.history] for r in (whole, parts)
    ]
    assert told[0] == told[1] and sum(c.generation == 0 for c in parts.history) == SMALL["parents"]


def test_l10_every_program_is_evaluated_as_it_was_replied(recording: Recording, tmp_path: Path) -> None:
    """What a program prints is its own hash: the text that ran is the text that is recorded, and each is another."""

    class Hashed(Generator):
        def reply(self, messages: Messages, call: int) -> Reply:
            name = hashlib.sha256(str(call).encode()).hexdigest()
            body = f"print('{name}')\n        for c in searchspace.list[:{20 + call}]:\n            func(c)"
            return Reply(f"```python\nclass A:\n    def __call__(self, func, searchspace):\n        {body}\n```")

    result = evolve(Hashed("hashed"), [recording], tmp_path, **SMALL)
    with sqlite3.connect(result.archive) as archive:
        printed = [row[0].strip() for row in archive.execute("SELECT output FROM candidate ORDER BY call")]
    archive.close()
    expected = [hashlib.sha256(str(call).encode()).hexdigest() for call in range(6)]
    assert printed == expected
    assert all(name in c.source for name, c in zip(expected, result.history, strict=True))


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda loop: pickle.loads(pickle.dumps(loop))], ids=["copy", "pickle"]
)
def test_l12_a_live_run_can_be_copied(duplicate) -> None:
    logging.getLogger("evotune").addHandler(handler := logging.StreamHandler())
    try:
        loop = Loop(_assess, Settings(), Prompts(), "task")
        other = duplicate(loop)
    finally:
        logging.getLogger("evotune").removeHandler(handler)
    assert other is not loop and other.budget == loop.budget and other.task_prompt == "task"


def _assess(proposals, bar):
    raise NotImplementedError
