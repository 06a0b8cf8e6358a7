"""What a run has used, and the caps that it must not pass: checked before every call, never found out afterwards.

A server that does not tell its usage leaves the account "unknown", never 0. Against a cap, what is unknown is estimated, high.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metabench.errors import UserError

from .generators.base import Reply

_CHARACTERS = 3.0  # a token has at least so many characters in English and code, so that this overestimates
_REPLY_TOKENS = 4_000  # what a reply is assumed to take before any was seen


@dataclass(frozen=True)
class Caps:
    """Upper bounds of a run; None is none.

    Attributes:
        tokens: prompts and replies together.
        usd: by the price table.
        seconds: wall clock after which no new call is made.
    """

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "usd", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"caps.{name} must be positive, not {value}; leave it out for no cap")


@dataclass
class Account:
    """Usage so far.

    Args:
        prices: by model, USD for a million tokens of prompt and of reply.
        model: whose price applies before a reply says otherwise.

    Raises:
        UserError: a cap in USD for a model whose price is not known.
    """

    caps: Caps = Caps()
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    model: str = ""

    def __post_init__(self) -> None:
        self.calls = self.prompt_tokens = self.reply_tokens = self.unknown = 0
        self._estimated = [0, 0]  # tokens of prompts and replies, with estimates for what is unknown
        self._pending = [0, 0]
        self._longest = 0
        self._started = time.monotonic()
        self._lock = threading.Lock()
        if self.caps.usd is not None and self.model not in self.prices:
            known = ", ".join(sorted(self.prices)) or "none"
            raise UserError(f"caps.usd needs the price of {self.model!r}; prices are known of: {known}")

    def refuse(self, prompt: str) -> str:
        """Why a call must not be made, "" if it may; if it may, it is reserved until `settle`."""
        with self._lock:
            asked, replied = self._expected(prompt)
            tokens = sum(self._estimated) + sum(self._pending) + asked + replied
            if self.caps.tokens is not None and tokens > self.caps.tokens:
                return f"the cap of {self.caps.tokens:,} tokens"
            if self.caps.usd is not None and self._usd(asked, replied) > self.caps.usd:
                return f"the cap of {self.caps.usd:g} USD"
            if self.caps.seconds is not None and time.monotonic() - self._started > self.caps.seconds:
                return f"the cap of {self.caps.seconds:g} s"
            self._pending[0] += asked
            self._pending[1] += replied
            return ""

    def settle(self, prompt: str, reply: Reply | None) -> None:
        """Book a call that was reserved."""
        with self._lock:
            asked, replied = self._expected(prompt)
            self._pending[0] = max(0, self._pending[0] - asked)
            self._pending[1] = max(0, self._pending[1] - replied)
            self._book(prompt, reply)

    def book(self, prompt: str, reply: Reply | None) -> None:
        """Book a call of an earlier part of the run."""
        with self._lock:
            self._book(prompt, reply)

    def _book(self, prompt: str, reply: Reply | None) -> None:
        self.calls += 1
        known_prompt = reply.prompt_tokens if reply else None
        known_reply = reply.reply_tokens if reply else None
        self.unknown += known_prompt is None or known_reply is None
        self.prompt_tokens += known_prompt or 0
        self.reply_tokens += known_reply or 0
        told = len(reply.text) if reply else 0
        self._estimated[0] += int(len(prompt) / _CHARACTERS) if known_prompt is None else known_prompt
        self._estimated[1] += int(told / _CHARACTERS) if known_reply is None else known_reply
        self._longest = max(self._longest, known_reply or int(told / _CHARACTERS))

    def _expected(self, prompt: str) -> tuple[int, int]:
        return int(len(prompt) / _CHARACTERS), self._longest or _REPLY_TOKENS

    def _usd(self, asked: int, replied: int) -> float:
        """USD of all that was booked and reserved, and of this."""
        ask, say = self.prices[self.model]
        prompts = self._estimated[0] + self._pending[0] + asked
        replies = self._estimated[1] + self._pending[1] + replied
        return (prompts * ask + replies * say) / 1e6

    def usd(self) -> float | None:
        """What the run has cost; None if that is unknown: no price, or calls whose usage the server did not tell."""
        if self.unknown or self.model not in self.prices:
            return None
        ask, say = self.prices[self.model]
        return (self.prompt_tokens * ask + self.reply_tokens * say) / 1e6

    def summary(self) -> dict[str, Any]:
        """For the run's summary; what is not known is "unknown"."""
        usd = self.usd()
        known = self.unknown == 0
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens if known else "unknown",
            "reply_tokens": self.reply_tokens if known else "unknown",
            "usd": "unknown" if usd is None else usd,
        }
