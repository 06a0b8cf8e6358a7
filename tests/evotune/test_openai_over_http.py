"""The openai generator against a real HTTP server on loopback that is slow, full, broken, terse or hostile."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import time
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evotune.evolve import Progress, evolve
from evotune.generators import Generator, NoReply, Reply, make
from evotune.generators.base import Messages
from evotune.jail import JailLimits
from metabench.errors import UserError
from metabench.recording import Recording

MESSAGES = [{"role": "user", "content": "write a program"}]
Answer = tuple[int, dict[str, str], Any]


def completion(content: str | None, finish: str = "stop", usage: bool = True, **message: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": "1", "object": "chat.completion", "created": 1, "model": "tiny-1",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}],
    }  # fmt: skip
    if usage:
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return body


class Server:
    """Answers request number i with `answer(i)`, some only after half a second; keeps what was asked."""

    def __init__(self, answer: Callable[[int], Answer], slow: Collection[int] = ()) -> None:
        outer, self.requests = self, []  # type: ignore[var-annotated]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                outer.requests.append((self.headers, json.loads(self.rfile.read(length))))
                time.sleep(0.5 if len(outer.requests) - 1 in slow else 0.0)
                status, headers, body = answer(len(outer.requests) - 1)
                if status == 0:  # a dropped connection
                    self.close_connection = True
                    self.connection.close()
                    return
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(raw)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    servers: list[Server] = []

    def start(*answers: Answer, slow: Collection[int] = ()) -> Server:
        servers.append(Server(lambda i: answers[min(i, len(answers) - 1)], slow))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def generator(server: Server, **options: Any) -> Any:
    return make(
        "openai", model="tiny", base_url=server.url, **{"backoff": 0.01, "timeout": 5.0, "retries": 3, **options}
    )


def close(made: Any) -> None:
    made._client.close()


def test_a_reply_with_its_account(serve: Callable[..., Server]) -> None:
    server = serve((200, {}, completion("hello")))
    made = generator(server)
    reply = made.reply(MESSAGES, 0)
    assert (reply.text, reply.model, reply.prompt_tokens, reply.reply_tokens) == ("hello", "tiny-1", 11, 7)
    _, body = server.requests[0]
    assert body == {"model": "tiny", "messages": MESSAGES}, "nothing is sent that was not asked for"
    close(made)


def test_usage_that_the_server_does_not_tell_is_unknown(serve: Callable[..., Server]) -> None:
    made = generator(serve((200, {}, completion("hello", usage=False))))
    reply = made.reply(MESSAGES, 0)
    assert reply.prompt_tokens is None and reply.reply_tokens is None
    close(made)


@pytest.mark.parametrize(
    "first",
    [
        (429, {"Retry-After": "0"}, {"error": {"message": "slow down"}}),
        (500, {}, {"error": {"message": "oops"}}),
        (503, {}, b"<html>bad gateway</html>"),
        (0, {}, None),
        (200, {}, b"this is not json"),
        (200, {}, {"object": "chat.completion", "choices": []}),
    ],
)
def test_what_passes_is_tried_again(serve: Callable[..., Server], first: Answer) -> None:
    server = serve(first, (200, {}, completion("at last")))
    made = generator(server)
    assert made.reply(MESSAGES, 0).text == "at last" and len(server.requests) == 2
    close(made)


def test_retry_after_is_obeyed(serve: Callable[..., Server]) -> None:
    server = serve((429, {"Retry-After": "0.4"}, {"error": {"message": "full"}}), (200, {}, completion("ok")))
    made, started = generator(server), time.monotonic()
    made.reply(MESSAGES, 0)
    assert 0.4 <= time.monotonic() - started < 3
    close(made)


def test_a_server_that_keeps_failing_is_given_up(serve: Callable[..., Server]) -> None:
    server = serve((503, {}, {"error": {"message": "down"}}))
    made = generator(server, retries=2)
    with pytest.raises(NoReply, match=r"failed 3 times.*503"):
        made.reply(MESSAGES, 0)
    assert len(server.requests) == 3
    close(made)


def test_a_refusal_is_not_tried_again_and_shows_no_key(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    server = serve((401, {}, {"error": {"message": "bad key"}}))
    made = generator(server)
    with pytest.raises(NoReply, match="refused: 401") as refused:
        made.reply(MESSAGES, 0)
    assert len(server.requests) == 1 and server.requests[0][0]["Authorization"] == "Bearer sk-very-secret"
    assert "secret" not in str(refused.value) and "secret" not in repr(vars(made)) and made.api_key == ""
    close(made)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (completion(None, "length"), "after spending all tokens on reasoning"),
        (completion("", "stop"), "sent no text"),
        (completion(None, "stop", refusal="I will not"), "I will not"),
    ],
)
def test_a_completion_without_text_is_no_reply(
    serve: Callable[..., Server], body: dict[str, Any], message: str
) -> None:
    made = generator(serve((200, {}, body)))
    with pytest.raises(NoReply, match=message):
        made.reply(MESSAGES, 0)
    close(made)


def test_a_cut_off_reply_is_a_reply(serve: Callable[..., Server]) -> None:
    made = generator(serve((200, {}, completion("```python\nclass A:", "length"))))
    assert made.reply(MESSAGES, 0).finish == "length"
    close(made)


def test_temperature_and_effort_only_where_given(serve: Callable[..., Server]) -> None:
    server = serve((200, {}, completion("hello")))
    made = generator(server, temperature=0.5, effort="low")
    made.reply(MESSAGES, 0)
    assert server.requests[0][1] == {
        "model": "tiny",
        "messages": MESSAGES,
        "temperature": 0.5,
        "reasoning_effort": "low",
    }
    close(made)


@pytest.mark.parametrize("retries", [0, 2])
def test_an_option_that_the_model_does_not_take_is_left_out_from_then_on(
    serve: Callable[..., Server], retries: int
) -> None:
    refusal = {"error": {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}}
    server = serve((400, {}, refusal), (200, {}, completion("hello")))
    made = generator(server, temperature=0.5, effort="low", retries=retries)
    assert made.reply(MESSAGES, 0).text == "hello" and made.reply(MESSAGES, 1).text == "hello"
    sent = [set(body) - {"model", "messages"} for _, body in server.requests]
    assert sent == [{"temperature", "reasoning_effort"}, {"reasoning_effort"}, {"reasoning_effort"}]
    close(made)


def test_it_can_be_copied_and_pickled_without_its_client(serve: Callable[..., Server]) -> None:
    made = generator(serve((200, {}, completion("hello"))))
    assert copy.deepcopy(made).reply(MESSAGES, 0).text == "hello"
    assert b"httpx" not in pickle.dumps(made)
    close(made)


def test_no_key_and_no_server_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        make("openai", model="o4-mini")


# -- a whole evolution against the server ---------------------------------------------------------------------------------

PROGRAM = """# Description: the first {n}
# Code:
```python
import random
class First{n}:
    def __call__(self, func, searchspace):
        for config in random.sample(searchspace.list, min({n}, searchspace.size)):
            func(config)
```"""
HOSTILE = """```python
import os
class X:
    def __call__(self, func, searchspace):
        os.system('touch /tmp/evotune-was-here')
```"""


def test_a_hundred_calls_of_which_a_quarter_fails(
    serve: Callable[..., Server], recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good, bad, slow, truncated, hostile, hanging, empty and refused replies; the account is full, and the key is in no file."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    hanging = HOSTILE.replace("os.system('touch /tmp/evotune-was-here')", "while True: pass").replace("import os\n", "")
    half = "```python\nclass Half:\n    def __call__(self, func, searchspace):\n        x = ("
    bad: list[Answer] = [
        (200, {}, completion(HOSTILE)),
        (200, {}, completion(half, "length")),
        (200, {}, completion(None, "length")),
        (400, {}, {"error": {"message": "content policy"}}),
        (200, {}, completion("I would rather talk.")),
    ]
    answers: list[Answer] = [
        bad[i // 4 % 5] if i % 4 == 3 else (200, {}, completion(PROGRAM.format(n=20 + i))) for i in range(100)
    ]
    answers[63] = (200, {}, completion(hanging))
    server = serve(*answers, slow={40})
    made = generator(server, concurrent=1)
    settings = {"parents": 4, "offspring": 12, "calls": 100, "repeats": 1, "finalists": 2, "confirmations": 2}
    limits = JailLimits(cpu_seconds=1, wall_seconds=5)
    result = evolve(made, [recording], tmp_path, prices={"tiny": (1.0, 2.0)}, limits=limits, **settings)
    close(made)
    assert result.score is not None and len(result.history) == 100
    assert dict(result.failures) == {"no-reply": 15, "syntax": 5, "forbidden": 4, "timeout": 1}
    assert result.usage["calls"] == 100 and result.usage["usd"] == "unknown", "ten calls told no usage"
    told = [c for c in result.history if c.prompt_tokens is not None]
    assert len(told) == 90 and all((c.prompt_tokens, c.reply_tokens) == (11, 7) for c in told)
    for path in tmp_path.rglob("*"):
        assert b"secret" not in path.read_bytes(), path
    assert not Path("/tmp/evotune-was-here").exists()


def test_a_server_that_fails_always_ends_cleanly(
    serve: Callable[..., Server], recording: Recording, tmp_path: Path
) -> None:
    made = generator(serve((500, {}, {"error": {"message": "down"}})), retries=0)
    settings = {"parents": 4, "offspring": 12, "calls": 100, "repeats": 1}
    result = evolve(made, [recording], tmp_path, **settings)
    close(made)
    assert result.source is None and dict(result.failures) == {"no-reply": 100} and "500" in result.why_none()


def test_evaluation_goes_on_while_calls_are_in_flight(recording: Recording, tmp_path: Path) -> None:
    """The last reply of the generation comes only after the first program was evaluated: it would never come otherwise."""
    evaluated = threading.Event()

    class Slow(Generator):
        concurrent = 4

        def reply(self, messages: Messages, call: int) -> Reply:
            if call == 3 and not evaluated.wait(60):
                raise AssertionError("nothing was evaluated meanwhile")
            return Reply(PROGRAM.format(n=20 + call))

    def note(state: Progress) -> None:
        if state.last.call == 0:
            evaluated.set()

    settings = {"parents": 4, "offspring": 1, "calls": 5, "repeats": 1, "finalists": 1, "confirmations": 1}
    result = evolve(Slow("slow"), [recording], tmp_path, progress=note, **settings)
    assert not result.failures
