"""Evolution through LLaMEA: a seed decides it, a broken candidate never ends it, its budget is kept, it can be taken up again."""

from __future__ import annotations

import json
import logging
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evotune.archive import Archive
from evotune.contract import check
from evotune.evolve import EvolutionResult, Progress, evolve
from evotune.generators import Generator, NoReply, Reply
from evotune.generators.base import Messages
from evotune.generators.components import ComponentsGenerator
from evotune.generators.components.genome import DESIGN, Genome
from evotune.generators.components.synthesis import program
from evotune.generators.mixture import MixtureGenerator
from evotune.generators.replay import ReplayGenerator
from evotune.jail import JailLimits
from metabench.errors import UserError
from metabench.recording import Recording

SMALL = {"parents": 3, "offspring": 4, "calls": 9, "repeats": 1, "finalists": 2, "confirmations": 2}
GOOD = """
import random
class Helper:
    pass
class Good(OptAlg):
    def __call__(self, func, searchspace):
        for config in random.sample(searchspace.list, searchspace.size):
            func(config)
"""


def fenced(source: str) -> str:
    return f"# Description: a test\n# Code:\n```python\nfrom kernel_tuner.strategies.wrapper import OptAlg\n{source}\n```\n"


class Scripted(Generator):
    """Replies by a function of the call; what it raises, it raises."""

    def __init__(self, script: Callable[[int], str | Exception]) -> None:
        super().__init__(model="scripted")
        self.script, self.asked = script, []  # type: ignore[var-annotated]

    def reply(self, messages: Messages, call: int) -> Reply:
        self.asked.append(call)
        text = self.script(call)
        if isinstance(text, Exception):
            raise text
        return Reply(text)


def rows(path: Path) -> list[tuple[object, ...]]:
    with Archive.open(path) as archive:
        return list(archive.without_times())


@pytest.fixture(scope="module")
def finished(two_recordings: list[Recording], tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    """One small run that several tests look at."""
    folder = tmp_path_factory.mktemp("run")
    return evolve(ComponentsGenerator(seed=1), two_recordings, folder, seed=1, **SMALL)


def test_a_seed_decides_a_run_times_apart(
    finished: EvolutionResult, two_recordings: list[Recording], tmp_path: Path
) -> None:
    random.seed(99)
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    again = evolve(ComponentsGenerator(seed=1), two_recordings, tmp_path / "again", seed=1, workers=1, **SMALL)
    assert rows(finished.archive) == rows(again.archive)
    assert (again.source, again.score, again.runs) == (finished.source, finished.score, finished.runs)
    assert random.getstate() == state, "global generators are left as they were"
    assert np.random.get_state()[1].tolist() == numpy_state  # type: ignore[index]  # noqa: NPY002
    other = evolve(ComponentsGenerator(seed=2), two_recordings, tmp_path / "other", seed=2, **SMALL)
    assert rows(other.archive) != rows(again.archive)


def test_what_a_run_leaves(finished: EvolutionResult) -> None:
    assert len(finished.history) == SMALL["calls"], "the last generation is cut to the budget"
    assert [c.call for c in finished.history] == list(range(9))
    assert finished.program is not None and check(finished.program.read_text()) == finished.name
    assert finished.score is not None and set(finished.runs) == {"synthetic/one", "synthetic/two"}
    assert all(len(p) == SMALL["confirmations"] for p in finished.runs.values())
    summary = json.loads((finished.folder / "evolution.json").read_text())
    assert summary["best"]["score"] == finished.score and len(summary["scores"]) == 9
    later = [c for c in finished.history if c.generation > 0]
    assert all(c.operator and c.parents and max(c.parents) < c.call for c in later)
    assert {len(c.parents) for c in later if c.operator in ("crossover", "graft")} <= {2}


def test_the_replay_generator_repeats_a_run_bit_for_bit(
    finished: EvolutionResult, two_recordings: list[Recording], tmp_path: Path
) -> None:
    again = evolve(ReplayGenerator.from_file(finished.archive), two_recordings, tmp_path, seed=1, **SMALL)
    assert [c.source for c in again.history] == [c.source for c in finished.history]
    assert [c.score for c in again.history] == [c.score for c in finished.history]


@pytest.mark.parametrize("cut", [0, 2, 5, 8])
def test_a_killed_run_is_taken_up_without_paying_twice(
    finished: EvolutionResult, two_recordings: list[Recording], tmp_path: Path, cut: int
) -> None:
    """As after a SIGKILL: the archive holds `cut` evaluated candidates, and one reply that was paid for and not evaluated."""
    copy = tmp_path / "archive.sqlite"
    with sqlite3.connect(finished.archive) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("DELETE FROM candidate WHERE call > ?", (cut,))
        target.execute(
            "UPDATE candidate SET status='pending', score=NULL, runs=NULL, source=NULL WHERE call = ?", (cut,)
        )
    source.close()
    target.close()
    recorded = [c.reply for c in finished.history]
    generator = Scripted(lambda call: recorded[call] or "")
    generator.model = "components"
    result = evolve(generator, two_recordings, tmp_path, seed=1, resume=True, **SMALL)
    assert generator.asked == list(range(cut + 1, 9))
    assert [c.score for c in result.history] == [c.score for c in finished.history]
    assert result.score == finished.score


def test_a_run_is_only_taken_up_as_it_was_started(
    finished: EvolutionResult, two_recordings: list[Recording], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="other settings \\(repeats\\)"):
        evolve(ComponentsGenerator(1), two_recordings, finished.folder, seed=1, resume=True, **{**SMALL, "repeats": 2})
    started = ComponentsGenerator(1, start=["design"])
    with pytest.raises(
        UserError, match=r"other settings \(generator.start\); it can only be taken up as it was started"
    ):
        evolve(started, two_recordings, finished.folder, seed=1, resume=True, **SMALL)
    with pytest.raises(UserError, match="exists already"):
        evolve(ComponentsGenerator(1), two_recordings, finished.folder, seed=1, **SMALL)
    with pytest.raises(UserError, match="no archive"):
        evolve(ComponentsGenerator(1), two_recordings, tmp_path, seed=1, resume=True, **SMALL)


def test_a_run_from_given_programs_is_taken_up_from_the_same_ones_wherever_their_file_is(
    recording: Recording, tmp_path: Path
) -> None:
    run, small = tmp_path / "run", {"parents": 1, "offspring": 1, "calls": 2, "repeats": 1, "seed": 1}
    (tmp_path / "given.py").write_text(program(DESIGN))
    first = evolve(ComponentsGenerator(1, start=["design"]), [recording], run, **small)
    again = evolve(ComponentsGenerator(1, start=[str(tmp_path / "given.py")]), [recording], run, resume=True, **small)
    assert [c.source for c in again.history] == [c.source for c in first.history]
    (tmp_path / "given.py").write_text(program(Genome(walk="better")))
    for start in ([], [str(tmp_path / "given.py")], ["design", "design"]):
        with pytest.raises(UserError, match=r"other settings \(generator.start\)"):
            evolve(ComponentsGenerator(1, start=start), [recording], run, resume=True, **small)
    mixed = MixtureGenerator([ComponentsGenerator(1, start=["design"]), Scripted(lambda call: "")], [1, 1])
    assert list(mixed.decisive) == ["components.start"]


BROKEN = {
    "no-reply": "I am sorry, I cannot write code.",
    "syntax": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace)\n        pass"),
    "import": fenced("import torch\nclass X(OptAlg):\n    def __call__(self, func, searchspace):\n        pass"),
    "interface": fenced("class X(OptAlg):\n    def run(self):\n        pass"),
    "forbidden": fenced("import os\nclass X(OptAlg):\n    def __call__(self, func, searchspace):\n        pass"),
    "crash": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace):\n        raise ValueError('oh')"),
    "timeout": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace):\n        while True:\n            pass"),
    "memory": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace):\n        x = bytearray(2**40)"),
    "no-evaluation": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace):\n        return None"),
    "illegal-only": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace):\n        func(('no',))"),
    "no-improvement": fenced("class X(OptAlg):\n    def __call__(self, func, searchspace):\n        func(searchspace.list[0])"),
}  # fmt: skip


def test_every_candidate_broken_ends_cleanly_and_says_why(recording: Recording, tmp_path: Path) -> None:
    kinds = list(BROKEN)
    settings = {"parents": 4, "offspring": 4, "calls": len(kinds) + 2, "repeats": 1}
    generator = Scripted(lambda call: NoReply("quota") if call >= len(kinds) else BROKEN[kinds[call]])
    result = evolve(generator, [recording], tmp_path, limits=JailLimits(cpu_seconds=1), **settings)
    assert result.source is None and result.score is None and result.program is None
    assert [c.status for c in result.history[: len(kinds)]] == kinds, "every failure is of its own kind"
    assert result.failures["no-reply"] == 3 and "quota" in result.why_none()
    failure = result.history[kinds.index("crash")].failure
    assert failure is not None and (failure.message, failure.line) == ("ValueError: oh", 4)
    assert not (tmp_path / "best.py").exists()


def test_a_few_good_among_broken_replies_are_found(recording: Recording, tmp_path: Path) -> None:
    kinds = list(BROKEN.values())
    generator = Scripted(lambda c: fenced(GOOD) if c % 3 == 1 else RuntimeError("dropped") if c == 2 else kinds[c % 11])
    states: list[Progress] = []
    result = evolve(
        generator, [recording], tmp_path, limits=JailLimits(cpu_seconds=1), progress=states.append, **{**SMALL, "calls": 12}
    )  # fmt: skip
    assert result.name == "Good", "the optimizer, not the helper before it"
    assert sum(result.failures.values()) == 8 and [s.done for s in states] == list(range(1, 13))
    assert result.history[2].status == "no-reply" and "dropped" in str(result.history[2].failure)
    assert [c.repeated for c in result.history if c.status == "ok"] == [False, True, True, True], (
        "one program, one evaluation"
    )


def test_failures_are_told_to_the_next_call_with_their_line(recording: Recording, tmp_path: Path) -> None:
    settings = {"parents": 1, "offspring": 1, "calls": 2, "repeats": 1}
    result = evolve(Scripted(lambda call: BROKEN["crash"]), [recording], tmp_path, **settings)
    prompt = result.history[1].prompt
    assert "failed (crash): ValueError: oh. The failing line is line 4: `raise ValueError('oh')`" in prompt


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calls": 6}, "smaller than one generation: 3 parents and 4 offspring need 7; nothing was spent"),
        ({"offspring": 0}, "evolution.offspring must be at least 1"),
        ({"repeats": 0}, "evolution.repeats"),
        ({"parents": "abc"}, "evolution.parents must be a whole number, not 'abc'"),
        ({"race": 1}, "evolution.race must be true or false, not 1"),
        ({"popsize": 3}, "no setting popsize; it has adapt, calls,"),
    ],
)
def test_a_budget_below_one_generation_is_told_before_anything_is_spent(
    recording: Recording, tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    generator = Scripted(lambda call: "")
    with pytest.raises(UserError, match=message):
        evolve(generator, [recording], tmp_path, **{**SMALL, **changes})
    assert generator.asked == [] and not list(tmp_path.iterdir())


def test_nobody_hears_of_llamea(recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    evolve(ComponentsGenerator(1), [recording], tmp_path / "run", seed=1, **{**SMALL, "calls": 7})
    assert capsys.readouterr() == ("", "")
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == (handlers, level)
    left = {p.name.split("-")[0] for p in (tmp_path / "run").iterdir()}
    assert left <= {"archive.sqlite", "archive.sqlite-wal", "archive.sqlite-shm", "best.py", "evolution.json"}, (
        "no pickles, no logs"
    )


def test_description_of_the_spaces_is_an_option(recording: Recording, tmp_path: Path) -> None:
    settings = {"parents": 1, "offspring": 1, "calls": 2, "repeats": 1}
    told = evolve(Scripted(lambda c: fenced(GOOD)), [recording], tmp_path / "a", info=True, **settings)
    blind = evolve(Scripted(lambda c: fenced(GOOD)), [recording], tmp_path / "b", info=False, **settings)
    assert all('"Name": "unroll"' in c.prompt and "x * y <= 512" in c.prompt for c in told.history)
    assert not any("unroll" in c.prompt for c in blind.history)
