"""What a run has used, and the caps that it must not pass: checked before every call, never found out afterwards.

A server that does not tell its usage leaves the account "unknown", never 0. Against a cap, what is unknown is estimated, high.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
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
        calls: to the generator.
        evaluations: programs that are run, those that failed among them. A reply counts from when it comes; one that turns out to
            hold no program, or one that was seen before, is taken back.
    """

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    calls: int | None = None
    evaluations: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "usd", "seconds", "calls", "evaluations"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise UserError(f"caps.{name} must be a positive number, not {value}; leave it out for no cap")


@dataclass
class Account:
    """Usage so far.

    Args:
        prices: by model, USD for a million tokens of prompt and of reply.
        models: that may be asked.

    Raises:
        UserError: a cap in USD for a model whose price is not known.
    """

    caps: Caps = Caps()
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    models: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.calls = self.prompt_tokens = self.reply_tokens = self.unknown = 0
        self._usd: float | None = 0.0
        # Against the caps: tokens and USD of what was booked, and of calls in flight, with estimates for what is unknown.
        self._estimated, self._pending = [0.0, 0.0], [0.0, 0.0]
        self._longest = self._in_flight = self.evaluations = 0
        self._started = time.monotonic()
        self._lock = threading.Lock()
        lacking = [model for model in self.models if model not in self.prices]
        if self.caps.usd is not None and lacking:
            known = ", ".join(sorted(self.prices)) or "none"
            raise UserError(
                f"caps.usd needs the price of {', '.join(map(repr, lacking))}; prices are known of: {known}"
            )

    def refuse(self, prompt: str, model: str) -> str:
        """Why a call must not be made, "" if it may; if it may, it is reserved until `settle`."""
        with self._lock:
            expected = self._expected(prompt, model)
            tokens, usd = (sum(parts) for parts in zip(self._estimated, self._pending, expected, strict=True))
            if self.caps.calls is not None and self.calls + self._in_flight >= self.caps.calls:
                return f"the cap of {self.caps.calls:,} calls"
            if self.caps.evaluations is not None and self.evaluations + self._in_flight >= self.caps.evaluations:
                return f"the cap of {self.caps.evaluations:,} evaluations"
            if self.caps.tokens is not None and tokens > self.caps.tokens:
                return f"the cap of {self.caps.tokens:,} tokens"
            if self.caps.usd is not None and usd > self.caps.usd:
                return f"the cap of {self.caps.usd:g} USD"
            if self.caps.seconds is not None and time.monotonic() - self._started > self.caps.seconds:
                return f"the cap of {self.caps.seconds:g} s"
            self._in_flight += 1
            self._pending = [have + more for have, more in zip(self._pending, expected, strict=True)]
            return ""

    def settle(self, prompt: str, reply: Reply | None, model: str) -> None:
        """Book a call that was reserved."""
        with self._lock:
            expected = self._expected(prompt, model)
            self._in_flight -= 1
            self.evaluations += reply is not None
            self._pending = [max(0.0, have - less) for have, less in zip(self._pending, expected, strict=True)]
            self._book(prompt, reply, model)

    def book(self, prompt: str, reply: Reply | None, model: str) -> None:
        """Book a call of an earlier part of the run."""
        with self._lock:
            self._book(prompt, reply, model)

    def evaluated(self, count: int) -> None:
        """Book programs of an earlier part of the run; a negative number takes back a reply that turned out to need no run."""
        with self._lock:
            self.evaluations += count

    def cost(self, reply: Reply | None, model: str) -> float | None:
        """USD of one call; None if it is not known."""
        if reply is None or reply.prompt_tokens is None or reply.reply_tokens is None or model not in self.prices:
            return None
        return self._price(model, reply.prompt_tokens, reply.reply_tokens)

    def _book(self, prompt: str, reply: Reply | None, model: str) -> None:
        self.calls += 1
        asked = reply.prompt_tokens if reply else None
        said = reply.reply_tokens if reply else None
        self.unknown += asked is None or said is None
        self.prompt_tokens += asked or 0
        self.reply_tokens += said or 0
        cost = self.cost(reply, model)
        self._usd = None if cost is None or self._usd is None else self._usd + cost
        asked = int(len(prompt) / _CHARACTERS) if asked is None else asked
        said = int(len(reply.text if reply else "") / _CHARACTERS) if said is None else said
        self._longest = max(self._longest, said)
        self._estimated = [self._estimated[0] + asked + said, self._estimated[1] + self._price(model, asked, said)]

    def _expected(self, prompt: str, model: str) -> tuple[float, float]:
        """Tokens and USD that a call may take."""
        asked, said = int(len(prompt) / _CHARACTERS), self._longest or _REPLY_TOKENS
        return asked + said, self._price(model, asked, said)

    def _price(self, model: str, asked: int, said: int) -> float:
        """USD; 0 for a model without a price, which a cap in USD does not allow."""
        ask, say = self.prices.get(model, (0.0, 0.0))
        return (asked * ask + said * say) / 1e6

    def usd(self) -> float | None:
        """What the run has cost; None if that is unknown: no price, or calls whose usage the server did not tell."""
        return self._usd if self.calls or all(model in self.prices for model in self.models) else None

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
