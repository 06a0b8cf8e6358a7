"""Prompts are what a run's money buys: what is sent is compared with committed text, letter for letter.

After a change that is meant: `UPDATE_GOLDEN=1 pytest tests/evotune/test_prompts.py`, and read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from evotune.contract import Failure, FailureKind
from evotune.evolve import evolve
from evotune.generators import Generator, Reply
from evotune.generators.base import Messages
from evotune.plan import plan
from evotune.prompts import MUTATIONS, Prompts, describe, feedback
from evotune.settings import Settings
from metabench.errors import UserError
from metabench.recording import Recording

GOLDEN = Path(__file__).parent / "golden"
SOURCE = """\
class A(OptAlg):
    def __call__(self, func, searchspace):
        for config in searchspace.list[:{}]:
            func(config)
"""


def same_as_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; see the docstring of this file"


class Recorder(Generator):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(model="recorder")
        self.prompts: list[str] = []

    def reply(self, messages: Messages, call: int) -> Reply:
        assert [m["role"] for m in messages] == ["user"]
        self.prompts.append(messages[0]["content"])
        code = "from kernel_tuner.strategies.wrapper import OptAlg\n\n\n" + SOURCE.replace("{}", str(5 + call))
        return Reply(f"# Description: the first {5 + call}\n# Code:\n```python\n{code}```\n")


@pytest.mark.parametrize("info", [False, True])
def test_what_is_sent(recording: Recording, tmp_path: Path, info: bool) -> None:
    recorder = Recorder()
    settings = {"parents": 2, "offspring": 2, "calls": 4, "repeats": 1, "finalists": 1, "confirmations": 1}
    evolve(recorder, [recording], tmp_path, info=info, seed=3, **settings)
    told = "told" if info else "blind"
    same_as_golden(f"first_{told}.txt", recorder.prompts[0])
    same_as_golden(f"later_{told}.txt", recorder.prompts[2])


def test_there_are_twelve_mutations_and_each_is_recognised() -> None:
    assert len(MUTATIONS) == 12 and len({m.name for m in MUTATIONS}) == len({m.text for m in MUTATIONS}) == 12
    for mutation in MUTATIONS:
        assert Prompts().kind_of(f"...\n{mutation.text}\n...") == mutation.kind
    assert Prompts().kind_of("write a program") is None


def test_the_description_of_a_space_is_json(recording: Recording) -> None:
    told = json.loads(json.dumps(describe(recording.space)))
    assert [p["Name"] for p in told["TuningParameters"]] == list(recording.space.names)
    assert told["ValidConfigurations"] == len(recording.space) and told["Conditions"] == [
        {"Expression": "x * y <= 512"}, {"Expression": "unroll <= y"},
    ]  # fmt: skip


def test_feedback_has_scores_or_the_failing_line() -> None:
    good = feedback(0.5, {"a": 0.4, "b": 0.6}, None)
    assert "scored 0.500" in good and "a: 0.400; b: 0.600" in good
    bad = feedback(None, {}, Failure(FailureKind.TIMEOUT, "it was still running after 60 s", 7, "    while True:"))
    assert "failed (timeout)" in bad and "line 7: `while True:`" in bad


def test_a_dry_run_tells_the_cost_and_asks_nobody(recording: Recording) -> None:
    settings = Settings(calls=100)
    told = plan("m", [recording], settings, prices={"m": (1.0, 4.0)})
    assert told.calls == 100 and told.usd is not None
    assert told.usd == pytest.approx((told.prompt_tokens + 4 * told.reply_tokens) / 1e6)
    assert "Nothing was spent" in told.describe() and Prompts().role in told.describe()
    assert "unknown" in plan("m", [recording], settings).describe()


def test_a_configuration_may_replace_texts_and_weights() -> None:
    more = {"name": "shrink", "kind": "simplify", "text": "Halve it.", "weight": 2}
    changed = Prompts().changed({"new": 0, "refine": 3}, [more], role="You are terse.", task=None)
    assert (changed.role, changed.task) == ("You are terse.", Prompts().task) and len(changed.mutations) == 13
    assert {m.name: m.weight for m in changed.mutations if m.name in ("new", "refine", "shrink")} == {
        "new": 0, "refine": 3, "shrink": 2,
    }  # fmt: skip
    assert changed.kind_of("... Halve it. ...") == "simplify"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"nope": 1}}, "unknown mutation 'nope'; allowed: balance"),
        ({"weights": dict.fromkeys([m.name for m in MUTATIONS], 0)}, "one at least is more"),
        ({"weights": {"new": -1}}, "0 or more"),
        ({"mutations": [{"name": "a", "kind": "b", "text": "c"}]}, "unknown kind of mutation 'b'"),
        ({"mutations": [{"name": "a"}]}, "a mutation is a name, a kind"),
        ({"rule": "x"}, "unknown prompt 'rule'"),
    ],
)
def test_mistakes_in_prompts_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Prompts().changed(**options)
