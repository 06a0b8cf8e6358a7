"""Edits instead of programs, mutations that are drawn by their success, hopeless candidates given up, niching and selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotune import edits
from evotune._llamea import Operator
from evotune.evaluate import Evaluator, _is_hopeless
from evotune.evolve import evolve
from evotune.generators import Generator, Reply
from evotune.generators.base import Messages
from evotune.generators.components import ComponentsGenerator, Genome, program
from evotune.loop import _Odds
from metabench.errors import UserError
from metabench.recording import Recording

BASE = """import random


class A:
    def __call__(self, func, searchspace):
        for c in searchspace.list:
            func(c)
"""
SMALL = {"parents": 2, "offspring": 3, "calls": 5, "repeats": 1, "finalists": 1, "confirmations": 1}


def edit(search: str, replacement: str) -> str:
    return f"# Description: shorter\n```\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n```\n"


def test_an_edit_is_applied_where_it_fits() -> None:
    text = edit("        for c in searchspace.list:   ", "        for c in searchspace.list[:9]:")
    assert "list[:9]" in edits.apply(BASE, text), "blanks at the end of a line do not matter"
    two = edit("import random", "import math") + edit("            func(c)", "            func(c)\n            func(c)")
    assert edits.apply(BASE, two).count("func(c)") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no block at all", "no SEARCH/REPLACE block"),
        (edit("for d in searchspace.list", "x"), "occurs 0 times: for d in"),
        (edit("", "x"), r"occurs 0 times: \(nothing\)"),
        (edit("import random", "import random"), "change nothing"),
    ],
)
def test_an_edit_that_does_not_fit_fails(text: str, message: str) -> None:
    with pytest.raises(edits.EditFailed, match=message):
        edits.apply(BASE, text)


class Editor(Generator):
    """Whole programs first, then edits, one of which does not fit."""

    def __init__(self) -> None:
        super().__init__(model="editor")
        self.prompts: list[str] = []

    def reply(self, messages: Messages, call: int) -> Reply:
        self.prompts.append(messages[-1]["content"])
        if call < 2:
            return Reply(f"```python\n{BASE}```")
        search = "searchspace.list:" if call != 3 else "searchspace.missing:"
        return Reply(edit(f"        for c in {search}", f"        for c in searchspace.list[{call}:]:"))


def test_a_failed_edit_costs_no_evaluation(recording: Recording, tmp_path: Path) -> None:
    editor = Editor()
    result = evolve(editor, [recording], tmp_path, edits=True, **SMALL)
    assert "SEARCH/REPLACE diff format" in editor.prompts[2] and "SEARCH" not in editor.prompts[0]
    statuses = {c.call: c.status for c in result.history}
    assert statuses[3] == "no-reply" and result.history[3].source == ""
    assert "occurs 0 times" in str(result.history[3].failure)
    assert "list[2:]" in result.history[2].source and result.history[2].description == "shorter"
    with pytest.raises(UserError, match="writes whole programs"):
        evolve(ComponentsGenerator(), [recording], tmp_path / "no", edits=True, **SMALL)


def test_mutations_that_succeed_are_drawn_more_often() -> None:
    good, bad = Operator("good", "good", 1.0, 1), Operator("bad", "bad", 1.0, 1)
    odds = _Odds([good, bad], adapt=True)
    for _ in range(5):
        odds.update([(good.id, True), (good.id, False), (bad.id, False), (bad.id, False)])
    assert good.weight > 3 * bad.weight > 0
    fixed = Operator("fixed", "fixed", 1.0, 1)
    _Odds([fixed], adapt=False).update([(fixed.id, False)] * 9)
    assert fixed.weight == 1.0


def test_only_what_is_clearly_worse_is_given_up() -> None:
    assert not _is_hopeless([[-5.0, -5.0]], bar=1.0), "two runs say nothing"
    assert _is_hopeless([[-5.0, -5.1, -4.9]], bar=1.0)
    assert not _is_hopeless([[0.4, 0.5, 0.6]], bar=0.7)
    assert not _is_hopeless([[-9.0, 0.0, 9.0]], bar=1.0), "scattered runs may still be good"


def test_a_race_saves_repeats(two_recordings: list[Recording]) -> None:
    source = program(Genome(walk="better"))
    with Evaluator(two_recordings, repeats=6, workers=1) as evaluator:
        raced = evaluator.submit(source, bar=50.0).result()
        again = evaluator.submit(source).result()
    assert {len(p) for p in raced.runs.values()} == {3} and raced.score is not None
    assert again.repeated and again.runs == raced.runs


OPTIONS = [
    {"selection": "tournament"}, {"selection": "roulette"}, {"niching": "map_elites"}, {"niching": "novelty"}, {"elitism": False},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_selection_and_niching(recording: Recording, tmp_path: Path, options: dict[str, object]) -> None:
    result = evolve(ComponentsGenerator(2), [recording], tmp_path, seed=2, **{**SMALL, "calls": 8, **options})
    assert len(result.history) == 8 and result.source is not None


def test_names_of_options_are_checked(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="random, roulette, tournament"):
        evolve(ComponentsGenerator(), [recording], tmp_path, selection="best", **SMALL)
