"""What every generator is: an LLaMEA `LLM` whose replies are numbered, so that a run can be repeated and taken up again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._llamea import LLM

Messages = Sequence[dict[str, str]]


class NoReply(Exception):
    """A call that brought no usable text, after whatever retries there are; the message says why."""


@dataclass(frozen=True)
class Reply:
    """What one call brought.

    Attributes:
        text: the reply.
        model: who gave it.
        prompt_tokens, reply_tokens: as the server counted them; None is unknown, never 0.
        finish: why it ended ("stop", "length"), as the server says.
    """

    text: str
    model: str = ""
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    finish: str = "stop"


@dataclass(frozen=True)
class Gain:
    """What became of a call.

    Attributes:
        model: the model that was asked.
        improved: whether its program is better than its parents; of a first program, whether it is valid.
        usd: what the call cost; None if that is not known.
    """

    model: str
    improved: bool
    usd: float | None


class Generator(LLM):
    """A source of programs.

    Subclasses implement `reply`. `query` is what LLaMEA calls; it numbers the calls itself.

    Attributes:
        concurrent: how many calls may be in flight at once.
        edits: whether it can reply with edits of a program instead of a program.
    """

    concurrent = 1
    edits = True

    def __init__(self, model: str) -> None:
        super().__init__(api_key="", model=model)  # keys are never kept where a log or a pickle could find them
        self._calls = 0

    @abstractmethod
    def reply(self, messages: Messages, call: int) -> Reply:
        """The reply to a conversation.

        Args:
            messages: {"role": ..., "content": ...}, oldest first.
            call: number of the call in its run, from 0. Whatever is drawn at random depends on it and on a seed alone.

        Raises:
            NoReply: there is none.
        """

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all models that it may ask."""
        return (self.model,)

    @property
    def decisive(self) -> dict[str, Any]:
        """What decides its replies beside model and seed, for JSON; empty is usual. A run is only taken up with the same."""
        return {}

    def model_of(self, call: int) -> str:
        """The model that a call goes to, before it is made."""
        return self.model

    def learn(self, gains: Sequence[Gain]) -> None:
        """What the calls of a generation brought, in their order, once it is over; most have no use for it."""

    def query(self, session_messages: Messages) -> str:
        """The text of the reply to a conversation."""
        self._calls += 1
        return self.reply(session_messages, self._calls - 1).text
