"""The `openai` generator: any server that speaks the chat completions protocol, by the official client.

The key comes from the environment (OPENAI_API_KEY) and goes to the client alone. A server on one's own machine often
needs none.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from metabench.errors import UserError

from .base import Generator, Messages, NoReply, Reply

_RETRIED = (408, 409, 425, 429)
_LONGEST_WAIT = 120.0


class OpenAIGenerator(Generator):
    """A chat model.

    Args:
        model: the server's name for it.
        base_url: address of the server; None for OpenAI's own.
        temperature, effort, max_tokens: sent only when given, and no longer once the server says that the model does not take
            it: reasoning models refuse a temperature, others an effort.
        timeout: seconds for one attempt.
        retries: attempts after the first, on 429, 5xx, time-outs and dropped connections, with exponential backoff or
            after what the server's Retry-After says.
        concurrent: calls in flight at once.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        temperature: float | None = None,
        effort: str | None = None,
        max_tokens: int | None = None,
        timeout: float = 300.0,
        retries: int = 5,
        backoff: float = 2.0,
        concurrent: int = 4,
    ) -> None:
        super().__init__(model=model)
        self._client = _client(base_url, timeout)
        self.concurrent, self.retries, self.backoff = concurrent, retries, backoff
        self._random = random.Random()  # of its own: the global generator belongs to the evolution
        options = {"temperature": temperature, "reasoning_effort": effort, "max_completion_tokens": max_tokens}
        self._options = {name: value for name, value in options.items() if value is not None}

    def __getstate__(self) -> dict[str, Any]:
        """Without the client, which holds the key and cannot be copied."""
        return {name: value for name, value in vars(self).items() if name != "_client"}

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenAIGenerator:
        """LLaMEA copies what it holds; the client may be shared."""
        return self

    def reply(self, messages: Messages, call: int) -> Reply:
        """The model's reply, after retries.

        Raises:
            NoReply: the server refused, kept failing, or sent no text.
        """
        import openai

        options = self._options
        for attempt in range(self.retries + 1):
            try:
                completion = self._client.chat.completions.create(model=self.model, messages=list(messages), **options)
                return self._read(completion)
            except openai.APIStatusError as error:
                if error.status_code == 400 and self._leave_out(str(error.param), options):
                    return self.reply(messages, call)
                if error.status_code not in _RETRIED and error.status_code < 500:
                    raise NoReply(f"the server refused: {error.status_code} {error.message}") from error
                reason, wait = f"{error.status_code} {error.message}", self._wait(attempt, error.response.headers)
            except openai.APIConnectionError as error:  # time-outs are among these
                reason, wait = f"{type(error).__name__}: {error}", self._wait(attempt, {})
            except (openai.APIError, ValueError) as error:  # a body that is not what the protocol says
                reason, wait = f"{type(error).__name__}: {error}", self._wait(attempt, {})
            if attempt < self.retries:
                time.sleep(wait)
        raise NoReply(f"the server failed {self.retries + 1} times, last with {reason}")

    def _leave_out(self, refused: str, sent: dict[str, Any]) -> bool:
        """Whether the server refused one of the options that it was sent, which no call sends from then on."""
        self._options = {name: value for name, value in self._options.items() if name != refused}
        return refused in sent

    def _wait(self, attempt: int, headers: Any) -> float:
        """Seconds until the next attempt."""
        try:
            asked = float(headers.get("retry-after"))
        except (TypeError, ValueError):
            asked = self.backoff * 2.0**attempt * self._random.uniform(0.75, 1.25)
        return min(max(asked, 0.0), _LONGEST_WAIT)

    def _read(self, completion: Any) -> Reply:
        choice = (getattr(completion, "choices", None) or [None])[0]
        if choice is None:
            raise ValueError("a completion without choices")
        usage = getattr(completion, "usage", None)
        finish = choice.finish_reason or "unknown"
        content = choice.message.content
        if not content:
            spent = " after spending all tokens on reasoning" if finish == "length" else ""
            refusal = getattr(choice.message, "refusal", None)
            raise NoReply(f"the model sent no text{spent} (finish_reason {finish}{f', {refusal}' if refusal else ''})")
        return Reply(
            content,
            getattr(completion, "model", None) or self.model,
            getattr(usage, "prompt_tokens", None),
            getattr(usage, "completion_tokens", None),
            finish,
        )


def _client(base_url: str | None, timeout: float) -> Any:
    try:
        import openai
    except ImportError as error:
        raise UserError("generator=openai needs the openai package: pip install 'metaopt-toolkit[tune]'") from error
    key = os.environ.get("OPENAI_API_KEY", "")
    if not key and base_url is None:
        raise UserError(
            "generator=openai needs the environment variable OPENAI_API_KEY, or generator.base_url of a server of your own"
        )
    return openai.OpenAI(api_key=key or "none", base_url=base_url, timeout=timeout, max_retries=0)
