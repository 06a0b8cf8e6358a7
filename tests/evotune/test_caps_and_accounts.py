"""A cap is kept before it is passed; what a server does not tell is unknown, never nothing; paid work is never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotune.accounting import Account, Caps
from evotune.evolve import COMPLETE, evolve
from evotune.generators import Generator, Reply
from evotune.generators.base import Messages
from metabench.errors import UserError
from metabench.recording import Recording

PROMPT = "x" * 300
PROGRAM = """```python
import random
class A:
    def __call__(self, func, searchspace):
        for config in random.sample(searchspace.list, min(searchspace.size, {})):
            func(config)
```"""
SMALL = {"parents": 2, "offspring": 3, "calls": 11, "repeats": 1, "finalists": 1, "confirmations": 1}


class Metered(Generator):
    """Replies that tell their usage, or do not."""

    def __init__(self, told: bool) -> None:
        super().__init__(model="metered")
        self.told, self.calls = told, 0

    def reply(self, messages: Messages, call: int) -> Reply:
        self.calls += 1
        usage = (1000, 500) if self.told else (None, None)
        return Reply(PROGRAM.format(20 + call), "metered", *usage)


def test_sums_match_what_was_told() -> None:
    account = Account(prices={"m": (1.0, 10.0)}, models=["m"])
    for _ in range(3):
        assert account.refuse(PROMPT, "m") == ""
        account.settle(PROMPT, Reply("text", "m", 1_000, 100), "m")
    assert account.summary() == {"calls": 3, "prompt_tokens": 3_000, "reply_tokens": 300, "usd": pytest.approx(0.006)}


def test_usage_that_is_not_told_is_unknown() -> None:
    account = Account(prices={"m": (1.0, 10.0)}, models=["m"])
    account.settle(PROMPT, Reply("text", "m", 1_000, None), "m")
    account.settle(PROMPT, Reply("text", "m", 1_000, 100), "m")
    assert account.summary() == {"calls": 2, "prompt_tokens": "unknown", "reply_tokens": "unknown", "usd": "unknown"}
    assert Account(models=["no price"]).usd() is None


def test_calls_in_flight_count() -> None:
    account = Account(Caps(tokens=10_000), models=["m"])
    allowed = [account.refuse(PROMPT, "m") for _ in range(4)]
    assert allowed[:2] == ["", ""] and "10,000 tokens" in allowed[2]


def test_a_cap_in_money_needs_a_price() -> None:
    with pytest.raises(UserError, match=r"caps.usd needs the price of 'new'; prices are known of: old"):
        Account(Caps(usd=1.0), {"old": (1.0, 1.0)}, ["new"])
    with pytest.raises(UserError, match=r"caps\.tokens must be a positive number"):
        Caps(tokens=0)


@pytest.mark.parametrize(
    ("told", "caps", "most"),
    [
        (True, Caps(tokens=9_000), 6),
        (True, Caps(usd=0.012), 6),
        (False, Caps(tokens=8_000), 9),
        (True, Caps(calls=4), 4),
        (True, Caps(evaluations=3), 3),
    ],
)
def test_a_run_ends_at_its_cap_and_keeps_what_it_paid_for(
    recording: Recording, tmp_path: Path, told: bool, caps: Caps, most: int
) -> None:
    generator = Metered(told)
    prices = {"metered": (1.0, 2.0)}
    result = evolve(generator, [recording], tmp_path, caps=caps, prices=prices, **SMALL)
    assert 1 <= generator.calls <= most and "the cap of" in result.ended
    assert len(result.history) == generator.calls and all(c.status == "ok" for c in result.history)
    assert result.source is not None and result.program is not None and result.program.is_file()
    if told:
        assert result.usage["prompt_tokens"] == 1_000 * generator.calls
        assert result.usage["prompt_tokens"] + result.usage["reply_tokens"] <= (caps.tokens or 9_000)
    else:
        assert result.usage["prompt_tokens"] == "unknown" and result.usage["usd"] == "unknown"


def test_what_needs_no_run_is_no_evaluation() -> None:
    account = Account(Caps(evaluations=2), models=["m"])
    for _ in range(2):
        assert account.refuse(PROMPT, "m") == ""
    assert "2 evaluations" in account.refuse(PROMPT, "m"), "what is asked for may have to be run"
    account.settle(PROMPT, None, "m")
    assert account.refuse(PROMPT, "m") == "", "there was no reply"
    account.settle(PROMPT, Reply("text", "m"), "m")
    account.settle(PROMPT, Reply("text", "m"), "m")
    assert "2 evaluations" in account.refuse(PROMPT, "m")
    account.evaluated(-1)
    assert account.refuse(PROMPT, "m") == "", "one was a repetition"


def test_a_candidate_may_take_so_long_in_all(recording: Recording, tmp_path: Path) -> None:
    """Each run is within the jail's limits, all of them together are not."""
    busy = PROGRAM.replace("            func(config)", "            func(config)\n            sum(range(1_000_000))")

    class Busy(Metered):
        def reply(self, messages: Messages, call: int) -> Reply:
            return Reply(busy.format(20 + call), "metered", 1000, 500)

    settings = {"parents": 1, "offspring": 1, "calls": 2, "repeats": 9, "candidate_seconds": 1}
    result = evolve(Busy(True), [recording], tmp_path, **settings)
    assert [c.status for c in result.history] == ["timeout", "timeout"]
    assert "more than 1 CPU seconds together" in str(result.history[0].failure)


def test_a_run_that_a_cap_ended_goes_on_with_a_higher_one(recording: Recording, tmp_path: Path) -> None:
    generator = Metered(told=True)
    first = evolve(generator, [recording], tmp_path, caps=Caps(tokens=9_000), **SMALL)
    second = evolve(generator, [recording], tmp_path, resume=True, **SMALL)
    assert second.ended == COMPLETE and len(second.history) == 11 and generator.calls == 11
    assert [c.score for c in second.history[: len(first.history)]] == [c.score for c in first.history]
    assert second.usage["prompt_tokens"] == 11_000, "what was paid before counts"
