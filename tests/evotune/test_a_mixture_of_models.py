"""Several models: what brings more for its price is asked more often, what is unknown is not free, and a seed decides it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evotune.accounting import Caps
from evotune.archive import Archive
from evotune.evolve import evolve
from evotune.generators import Generator, Reply, make
from evotune.generators.base import Gain, Messages
from evotune.generators.mixture import Bandit, MixtureGenerator
from metabench.errors import UserError
from metabench.recording import Recording

SMALL = {"parents": 2, "offspring": 4, "calls": 14, "repeats": 1, "finalists": 1, "confirmations": 1}


class Model(Generator):
    """A model that writes ever longer random searches, or nothing that runs."""

    concurrent = 2

    def __init__(self, name: str, good: bool, tokens: int | None = 1000) -> None:
        super().__init__(model=name)
        self.good, self.tokens, self.asked = good, tokens, []  # type: ignore[var-annotated]

    def reply(self, messages: Messages, call: int) -> Reply:
        self.asked.append(call)
        body = f"for c in random.sample(searchspace.list, {20 + call}):\n            func(c)" if self.good else "oops"
        text = f"```python\nimport random\nclass A:\n    def __call__(self, func, searchspace):\n        {body}\n```"
        return Reply(text, f"{self.model}-2026", self.tokens, self.tokens)


def share(bandit: Bandit, number: int) -> float:
    return sum(bandit.choose(random.Random(i)) == number for i in range(400)) / 400


def test_of_two_that_cost_the_same_the_better_one_is_asked_more_often() -> None:
    bandit = Bandit([1.0, 1.0])
    assert 0.4 < share(bandit, 0) < 0.6
    for _ in range(5):
        bandit.learn([(0, True, 0.01), (0, False, 0.01), (1, False, 0.01), (1, False, 0.01)])
    assert share(bandit, 0) > 0.8


def test_improvement_is_weighed_against_price() -> None:
    bandit = Bandit([1.0, 1.0])
    for _ in range(5):
        bandit.learn([(0, True, 0.10), (0, True, 0.10), (1, True, 0.01), (1, False, 0.01)])
    assert share(bandit, 1) > 0.9, "half the chance at a tenth of the price"
    with_weight = Bandit([100.0, 1.0])
    with_weight.learn([(0, True, 0.10), (1, True, 0.01)])
    assert share(with_weight, 0) > 0.5


def test_what_is_unknown_costs_what_the_dearest_does_and_what_is_free_costs_something() -> None:
    bandit = Bandit([1.0, 1.0, 1.0, 1.0])
    assert bandit.costs() == [1.0] * 4, "nothing is known of any"
    bandit.learn([(0, True, 0.2), (1, True, 0.1), (2, True, None), (3, True, 0.0)])
    assert bandit.costs() == [1.0, 0.5, 1.0, Bandit.LEAST]


def test_by_the_weights_alone() -> None:
    mixture = MixtureGenerator([Model("a", True), Model("b", False)], [3.0, 1.0], adapt=False)
    mixture.learn([Gain("b", True, 0.0)] * 50)
    asked = [mixture.model_of(call) for call in range(400)]
    assert 0.65 < asked.count("a") / 400 < 0.85


def test_an_evolution_accounts_for_each_model_and_can_be_taken_up(recording: Recording, tmp_path: Path) -> None:
    def mixture() -> MixtureGenerator:
        return MixtureGenerator([Model("good", True), Model("bad", False)], [1.0, 1.0], seed=5)

    prices = {"good": (1.0, 1.0), "bad": (10.0, 10.0)}
    whole = evolve(mixture(), [recording], tmp_path / "whole", prices=prices, caps=Caps(usd=10.0), **SMALL)
    models = [c.model for c in whole.history]
    assert models.count("good-2026") > models.count("bad-2026") > 0
    assert whole.usage["usd"] == pytest.approx(0.002 * models.count("good-2026") + 0.02 * models.count("bad-2026"))
    first = evolve(mixture(), [recording], tmp_path / "cut", prices=prices, caps=Caps(tokens=16_000), **SMALL)
    assert 0 < len(first.history) < 14 and "16,000 tokens" in first.ended
    second = evolve(mixture(), [recording], tmp_path / "cut", prices=prices, resume=True, **SMALL)
    with Archive.open(whole.archive) as one, Archive.open(second.archive) as other:
        assert list(one.without_times()) == list(other.without_times())


def test_a_cap_in_money_needs_every_price(recording: Recording, tmp_path: Path) -> None:
    mixture = MixtureGenerator([Model("known", True), Model("new", True)], [1.0, 1.0])
    with pytest.raises(UserError, match=r"caps\.usd needs the price of 'new'"):
        evolve(mixture, [recording], tmp_path, prices={"known": (1.0, 1.0)}, caps=Caps(usd=1.0), **SMALL)


def test_a_mixture_by_name_and_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "replies.json"
    path.write_text("[]")
    members = [{"name": "components", "weight": 2}, {"name": "replay", "path": str(path)}]
    made = make("mixture", seed=3, members=members)
    assert made.models == ("components", "replay") and made.model == "mixture(components, replay)" and not made.edits
    with pytest.raises(UserError, match="at least two models, each once"):
        make("mixture", members=[{"name": "components"}, {"name": "components"}])
    with pytest.raises(UserError, match="weights must be positive"):
        make("mixture", members=[{"name": "components", "weight": 0}, members[1]])
    with pytest.raises(UserError, match="unknown generator 'gpt'"):
        make("mixture", members=[{"name": "gpt"}])
