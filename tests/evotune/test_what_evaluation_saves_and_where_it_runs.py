"""What behaves like something seen before is not run to the end, and that is told; where runs take place changes no result."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from evotune import launch
from evotune.contract import FailureKind
from evotune.evaluate import Evaluator
from evotune.evolve import evolve
from evotune.generators import Generator, Reply
from evotune.generators.base import Messages
from evotune.generators.components import ComponentsGenerator
from evotune.jail import Jail, JailLimits, Outcome
from evotune.toy import toy_recording
from metabench.baseline import baseline
from metabench.errors import UserError
from metabench.recording import Recording
from metabench.replay import Limits
from metabench.score import performance

FIRST = """
import random
class A:
    def __call__(self, func, searchspace):
        for config in random.sample(searchspace.list, searchspace.size):
            func(config)
"""
SAME = FIRST.replace("config", "point").replace("class A", "class B") + "\nUNUSED = 1\n"
SAME_ON_THE_TOY = FIRST.replace("searchspace.size", "min(searchspace.size, 14)")
SMALL = {"parents": 2, "offspring": 2, "calls": 4, "repeats": 2, "finalists": 1, "confirmations": 1}


def test_what_makes_the_same_requests_is_a_repetition_and_costs_two_runs(two_recordings: list[Recording]) -> None:
    with Evaluator(two_recordings, repeats=6, workers=1) as evaluator:
        first = evaluator.evaluate(FIRST)
        before = evaluator.evaluate(SAME.replace("UNUSED", "OTHER"))
        evaluator.settle([first])
        again, other = evaluator.evaluate(SAME), evaluator.evaluate(SAME_ON_THE_TOY)
    assert before.runs == first.runs and not before.repeated, "within a generation it must not matter which came first"
    assert again.repeated and again.name == "B" and again.runs == first.runs and again.trace == first.trace
    assert again.cpu_seconds < first.cpu_seconds / 2, "2 runs of 13"
    assert not other.repeated and other.trace != first.trace, "the toy space alone does not decide"


class Listening(launch.Local):
    """Keeps what was played, and how it ended."""

    def __init__(self) -> None:
        super().__init__(1, JailLimits())
        self.heard: list[tuple[launch.Play, Outcome]] = []

    def _run(self, play: launch.Play) -> Outcome:
        outcome = super()._run(play)
        self.heard.append((play, outcome))
        return outcome


def test_a_run_that_has_the_optimum_is_over_and_scores_what_it_would_have(two_recordings: list[Recording]) -> None:
    seeds, plays = range(6), Listening()
    with Evaluator(two_recordings, repeats=len(seeds), workers=1, launcher=plays) as evaluator:
        evaluated = evaluator.evaluate(FIRST)
    cut = {(p.recording.name, p.seed): outcome.trace for p, outcome in plays.heard}
    shorter = 0
    with Jail() as jail:
        for recording in two_recordings:
            base = baseline(recording)
            whole = [jail.run(FIRST, "A", recording, Limits(seconds=base.end), seed).trace for seed in seeds]
            assert evaluated.runs[recording.name] == tuple(performance(trace, recording, base) for trace in whole)
            shorter += sum(len(cut[recording.name, trace.seed].rows) < len(trace.rows) for trace in whole)
    ended = [outcome.trace.ended for _, outcome in plays.heard]
    assert shorter == ended.count("found") > 2
    assert "found" not in ended[:2], "the toy space and the first run go on to the end"


class Twins(Generator):
    """The same algorithm in ever other words."""

    def __init__(self) -> None:
        super().__init__(model="twins")

    def reply(self, messages: Messages, call: int) -> Reply:
        return Reply(f"```python\n{FIRST}\nUNUSED = {call}\n```")


def test_the_saving_is_reported_and_a_resumed_run_knows_it_too(recording: Recording, tmp_path: Path) -> None:
    result = evolve(Twins(), [recording], tmp_path, **{**SMALL, "calls": 6})
    assert [c.repeated for c in result.history] == [False, False, True, True, True, True]
    count, seconds = result.savings.repeated
    assert count == 4 and 0 < seconds < 4 * result.history[0].cpu_seconds and result.savings.saved == seconds
    assert "by 4 repetitions" in result.savings.describe()
    again = evolve(Twins(), [recording], tmp_path, resume=True, **{**SMALL, "calls": 6})
    assert [c.repeated for c in again.history] == [c.repeated for c in result.history]


def test_evaluation_goes_on_while_calls_are_in_flight(recording: Recording, tmp_path: Path) -> None:
    """Half a second a call: the next one is out before a program is evaluated, and that is done before the last reply."""
    slow = FIRST.replace("            func(config)", "            time.sleep(0.01)\n            func(config)")

    class Latent(Generator):
        def reply(self, messages: Messages, call: int) -> Reply:
            time.sleep(0.5)
            return Reply(f"```python\nimport time\n{slow}\nUNUSED = {call}\n```")

    result = evolve(
        Latent("latent"), [recording], tmp_path, **{**SMALL, "parents": 9, "offspring": 1, "calls": 10, "repeats": 1}
    )
    with sqlite3.connect(result.archive) as archive:
        asked, replied, evaluated = zip(
            *archive.execute("SELECT asked, replied, evaluated FROM candidate ORDER BY call"), strict=True
        )
    archive.close()
    assert not result.failures and asked[1] < evaluated[0] < replied[8]


def test_jobs_give_what_this_process_gives(recording: Recording, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="needs the extra slurm")
    settings = {**SMALL, "parents": 1, "offspring": 1, "calls": 2, "repeats": 1}
    jobs = {"name": "submitit", "cluster": "local", "timeout_min": 5}
    there = evolve(ComponentsGenerator(3), [recording], tmp_path / "jobs", launcher=jobs, **settings)
    here = evolve(ComponentsGenerator(3), [recording], tmp_path / "here", **settings)
    assert [c.runs for c in there.history] == [c.runs for c in here.history] and there.score == here.score
    assert not (tmp_path / "jobs" / "jobs").exists(), "what submitit wrote is cleared away"


def test_a_job_that_is_lost_is_tried_again_and_then_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit", reason="needs the extra slurm")
    jobs = launch.Submitit(1, JailLimits(), tmp_path / "jobs", cluster="debug")
    asked = []

    class Lost:
        def result(self) -> None:
            raise submitit.core.utils.UncompletedJobError("node failed\nlong story")

    monkeypatch.setattr(jobs._executor, "submit", lambda *arguments: asked.append(arguments) or Lost())
    outcome = jobs.submit(launch.Play(FIRST, "A", toy_recording(), Limits(), 0)).result()
    jobs.close()
    assert len(asked) == 3 and outcome.failure is not None and outcome.failure.kind is FailureKind.CRASH
    assert outcome.failure.message == "its job was lost 3 times: node failed"


def test_a_wrong_launcher_is_told_before_anything_runs(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown launcher 'ray'; allowed: local, submitit"):
        evolve(Twins(), [recording], tmp_path / "a", launcher={"name": "ray"}, **SMALL)
    with pytest.raises(UserError, match="launcher 'local' cannot be made with partition"):
        evolve(Twins(), [recording], tmp_path / "b", launcher={"name": "local", "partition": "gpu"}, **SMALL)
