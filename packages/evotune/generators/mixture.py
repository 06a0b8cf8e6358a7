"""The `mixture` generator: several models, and a bandit that calls more often on those that bring more for their price."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

from metabench.errors import UserError

from .base import Gain, Generator, Messages, Reply


class Bandit:
    """Thompson sampling on improvements per dollar.

    A call wins if its program is better than its parents. The chance to win has a Beta posterior, from counts that fade by a
    tenth every generation, for what helps changes in the course of a run. Drawn is a chance for each model; taken is the model
    with the largest chance divided by the mean price of its calls, times its weight.

    What a model costs may be unknown: then it counts as costing what the dearest known one does, never as free. What is free
    counts as costing a twentieth of the dearest: its programs have to be evaluated too.
    """

    MEMORY, LEAST = 0.9, 0.05

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = list(weights)
        self.wins, self.losses = [0.0] * len(weights), [0.0] * len(weights)
        self._usd: list[list[float]] = [[] for _ in weights]

    def choose(self, rng: random.Random) -> int:
        """The number of the model to call."""
        costs = self.costs()
        chances = [rng.betavariate(1.0 + won, 1.0 + lost) for won, lost in zip(self.wins, self.losses, strict=True)]
        return max(range(len(costs)), key=lambda i: self.weights[i] * chances[i] / costs[i])

    def costs(self) -> list[float]:
        """Of a call to each model, in units in which the dearest is 1."""
        means = [sum(usd) / len(usd) if usd else None for usd in self._usd]
        dearest = max((mean for mean in means if mean is not None), default=0.0)
        if dearest == 0.0:
            return [1.0] * len(means)
        return [1.0 if mean is None else max(mean / dearest, self.LEAST) for mean in means]

    def learn(self, outcomes: Sequence[tuple[int, bool, float | None]]) -> None:
        """Take in a generation: of every call the model's number, whether it won, what it cost."""
        self.wins = [self.MEMORY * won for won in self.wins]
        self.losses = [self.MEMORY * lost for lost in self.losses]
        for number, won, usd in outcomes:
            self.wins[number] += won
            self.losses[number] += not won
            if usd is not None:
                self._usd[number].append(usd)


class MixtureGenerator(Generator):
    """Several generators as one.

    Which one a call goes to depends on the seed, on the call's number, and on what earlier generations brought, so that a run
    can be repeated and taken up again.

    Args:
        members: the generators; weights: how often each is called, apart from what it brings.
        adapt: whether the bandit decides; otherwise the weights alone do.

    Raises:
        UserError: fewer than two members, two of the same model, or a weight that is not positive.
    """

    def __init__(
        self, members: Sequence[Generator], weights: Sequence[float], seed: int = 0, adapt: bool = True
    ) -> None:
        names = [member.model for member in members]
        if len(set(names)) < max(2, len(names)) or len(weights) != len(names):
            raise UserError(
                f"a mixture needs at least two models, each once and with a weight, not {', '.join(names) or 'none'}"
            )
        if not all(weight > 0 for weight in weights):
            raise UserError(f"a mixture's weights must be positive, not {', '.join(map(str, weights))}")
        super().__init__(model=f"mixture({', '.join(names)})")
        self.members, self.seed, self.adapt = list(members), seed, adapt
        self.bandit = Bandit(weights)
        self.concurrent = sum(member.concurrent for member in members)
        self.edits = all(member.edits for member in members)
        self._slots = [threading.Semaphore(member.concurrent) for member in members]

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the members' models."""
        return tuple(member.model for member in self.members)

    @property
    def decisive(self) -> dict[str, Any]:
        """What decides the members' replies."""
        return {f"{member.model}.{name}": value for member in self.members for name, value in member.decisive.items()}

    def model_of(self, call: int) -> str:
        """The model that a call goes to."""
        return self.members[self._number(call)].model

    def _number(self, call: int) -> int:
        rng = random.Random(f"mixture {self.seed} {call}")
        if self.adapt:
            return self.bandit.choose(rng)
        return rng.choices(range(len(self.members)), self.bandit.weights)[0]

    def reply(self, messages: Messages, call: int) -> Reply:
        """The reply of the member whose turn it is."""
        number = self._number(call)
        with self._slots[number]:  # no member gets more calls at once than it takes
            return self.members[number].reply(messages, call)

    def learn(self, gains: Sequence[Gain]) -> None:
        """Take in what the calls of a generation brought."""
        numbers = {model: number for number, model in enumerate(self.models)}
        self.bandit.learn([(numbers[gain.model], gain.improved, gain.usd) for gain in gains])
