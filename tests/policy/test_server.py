"""Policies behind a server: what is asked, how faults are met."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest

from agentbench_credit.errors import ModelError
from agentbench_credit.policy import server
from agentbench_credit.policy.base import Request, Sampling, generate
from agentbench_credit.policy.bytes import byte_tokenizer
from agentbench_credit.policy.server import ServerPolicy
from chat_server import Answer, chat_server, completion, refusal

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße"}]


def request(seed: int = 5, text: str = "Grüße") -> Request:
    ids = np.zeros(1, np.int32)
    return Request(ids, seed, None, lambda: [MESSAGES[0], {"role": "user", "content": text}])  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LONGEST_WAIT", 0.01)
    monkeypatch.delenv(server.KEY_VARIABLE, raising=False)


def answers(policy: ServerPolicy, *requests: Request) -> list[str | None]:
    found = generate(policy, requests, Sampling(temperature=0.5, top_p=0.9, top_k=7, max_new_tokens=11))
    return [None if each is None else policy.tokenizer.decode(each.ids) for each in found]


def test_what_is_asked_and_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(server.KEY_VARIABLE, "secret")
    with chat_server(lambda _: completion("Servus ☺", "length")) as (url, asked):
        policy = ServerPolicy(f"openai:{url}#toy")
        (found,) = generate(policy, [request()], Sampling(temperature=0.5, top_p=0.9, top_k=7, max_new_tokens=11))
    assert found is not None
    assert policy.tokenizer.decode(found.ids) == "Servus ☺"
    assert found.finish_reason == "length"
    assert len(found.logprobs) == len(found.ids) == len("Servus ☺".encode())
    assert np.isnan(found.logprobs).all(), "unknown, not certain"
    sent = {key: asked[0][key] for key in ("model", "messages", "temperature", "top_p", "top_k", "max_tokens", "seed")}
    assert sent == {
        "model": "toy",
        "messages": MESSAGES,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "max_tokens": 11,
        "seed": 5,
    }
    assert asked[0]["headers"]["Authorization"] == "Bearer secret"


def test_answers_keep_the_order_of_the_requests_though_they_come_at_once() -> None:
    together = threading.Barrier(4, timeout=20)

    def slow_echo(body: dict[str, Any]) -> Answer:
        together.wait()
        return completion(body["messages"][-1]["content"])

    with chat_server(slow_echo) as (url, _):
        policy = ServerPolicy(f"openai:{url}#toy")
        assert answers(policy, *(request(text=str(i)) for i in range(4))) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("fault", [refusal(429, retry_after="1"), refusal(503), (502, {}, b"<html>")])
def test_a_busy_server_is_asked_again(fault: Answer) -> None:
    turns = iter([fault, fault, completion("ok")])
    with chat_server(lambda _: next(turns)) as (url, asked):
        policy = ServerPolicy(f"openai:{url}#toy")
        assert answers(policy, request()) == ["ok"]
    assert len(asked) == 3


def test_a_server_that_stays_busy_is_given_up() -> None:
    with chat_server(lambda _: refusal(500, "overloaded")) as (url, asked):
        policy = ServerPolicy(f"openai:{url}#toy")
        with pytest.raises(ModelError, match="HTTP 500: overloaded"):
            answers(policy, request())
    assert len(asked) == server.ATTEMPTS


def test_a_conversation_too_long_is_that_rollouts_end_only() -> None:
    def full(body: dict[str, Any]) -> Answer:
        long = body["messages"][-1]["content"] == "long"
        return refusal(400, "This model's maximum context length is 8 tokens") if long else completion("ok")

    with chat_server(full) as (url, asked):
        policy = ServerPolicy(f"openai:{url}#toy")
        assert answers(policy, request(), request(text="long")) == ["ok", None]
    assert len(asked) == 2, "a refusal is not asked again"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (refusal(401, "bad key"), r"HTTP 401: bad key.*OPENAI_API_KEY"),
        ((200, {}, b"hello"), "no JSON object: hello"),
        ((200, {}, b'{"choices": []}'), "not a chat completion"),
    ],
)
def test_other_faults_are_said_in_one_line(answer: Answer, what: str) -> None:
    with chat_server(lambda _: answer) as (url, _):
        policy = ServerPolicy(f"openai:{url}#toy")
        with pytest.raises(ModelError, match=what):
            answers(policy, request())


def test_a_wrong_name_model_or_address_is_known_at_once() -> None:
    server_here, refused = chat_server(lambda _: completion("")), pytest.raises(ModelError, match="has no model other")
    with server_here as (url, _), refused:
        ServerPolicy(f"openai:{url}#other")
    for name in ("openai:localhost#toy", "openai:http://localhost"):
        with pytest.raises(ModelError, match="not a server and model"):
            ServerPolicy(name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ModelError, match="ConnectError"):
        ServerPolicy(f"openai:http://127.0.0.1:{port}/v1#toy")


def test_bytes_keep_any_text() -> None:
    tokenizer = byte_tokenizer()
    for text in ("", " a  b\n", "☺ é <|im_end|> </s>", "\x00\u2028"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert len(ids) == len(text.encode())
        assert tokenizer.decode(ids) == text
