"""The page about a run says what came out and where it comes from, whatever a model wrote, finished or not, valid or not."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from evotune.evolve import EvolutionResult, evolve
from evotune.generators import Generator, NoReply, Reply
from evotune.generators.base import Messages
from evotune.lineage import ancestry, report
from metabench.errors import UserError
from metabench.recording import Recording

pytest.importorskip("matplotlib", reason="figures need matplotlib (extra report)")

SETTINGS = {"parents": 2, "offspring": 4, "calls": 10, "repeats": 1, "finalists": 1, "confirmations": 2}
PROGRAM = """# Description: takes | the first {count} <b>points</b> `at` random
```python
import random
class A:
    def __call__(self, func, searchspace):
        for config in random.sample(searchspace.list, min({count}, searchspace.size)):
            func(config)
```"""


class Mixed(Generator):
    """Good, bad and missing replies."""

    def __init__(self, good: bool = True) -> None:
        super().__init__(model="mixed")
        self.good = good

    def reply(self, messages: Messages, call: int) -> Reply:
        if call == 3:
            raise NoReply("quota")
        if call == 5 or not self.good:
            return Reply(
                "```python\nclass A:\n    def __call__(self, f, s):\n        f.cache\n```", "mixed-1", 10, None
            )
        return Reply(PROGRAM.format(count=4 + 3 * call), "mixed-1", 10, 20)


@pytest.fixture(scope="module")
def run(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    return evolve(Mixed(), [recording], tmp_path_factory.mktemp("run"), prices={"mixed": (1.0, 1.0)}, **SETTINGS)


def test_the_page_of_a_finished_run(run: EvolutionResult) -> None:
    page = report(run.folder)
    text = page.read_text()
    assert page == run.folder / "report.md"
    assert (
        f"{run.score:.3f} on fresh seeds" in text
        and "10 of 10 calls to mixed" in text
        and "all calls were made" in text
    )
    assert (
        "| no-reply | 1 | 3 | no-reply: quota |" in text and "| crash | 1 | 5 |" in text and "(line 3: f.cache)" in text
    )
    assert "unknown, by the price table" in text and "| mixed-1 | 9 | 8 | 90 | unknown |" in text
    assert "takes \\| the first" in text and "&lt;b>points" in text, "what a model wrote is not markup"
    for name in ("best_over_calls", "lineage"):
        assert f"(report/{name}.png)" in text
        assert (run.folder / "report" / f"{name}.png").stat().st_size > 5_000
        assert (run.folder / "report" / f"{name}.csv").is_file()


def test_the_ancestry_leads_back_to_first_programs(run: EvolutionResult) -> None:
    best = max(run.history, key=lambda c: (c.score is not None, c.score or 0.0, c.call))
    line = ancestry(run.history, best)
    assert line[-1] == best and {c.call for c in line if c.generation == 0} == {c.call for c in line if not c.parents}
    assert all(set(c.parents) <= {d.call for d in line} for c in line)


def test_the_page_of_a_run_that_was_interrupted(run: EvolutionResult, tmp_path: Path) -> None:
    with sqlite3.connect(run.archive) as source, sqlite3.connect(tmp_path / "archive.sqlite") as target:
        source.backup(target)
        target.execute("DELETE FROM candidate WHERE call > 4")
        target.execute("UPDATE candidate SET status='pending', score=NULL, runs=NULL, failure=NULL WHERE call = 4")
    source.close()
    target.close()
    text = report(tmp_path).read_text()
    assert (
        "5 of 10 calls" in text and "under way, or interrupted" in text and "not confirmed on fresh seeds yet" in text
    )


def test_the_page_of_a_run_without_a_valid_candidate(recording: Recording, tmp_path: Path) -> None:
    evolve(Mixed(good=False), [recording], tmp_path, **{**SETTINGS, "calls": 6})
    text = report(tmp_path).read_text()
    assert "No candidate was valid." in text and "| crash | 5 | 0 |" in text


def test_a_page_about_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no archive of an evolution"):
        report(tmp_path)
