"""Policies behind an OpenAI-compatible server, reached over HTTP."""

from __future__ import annotations

import os
import random
import time
import weakref
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Literal, cast

import httpx
import numpy as np

from agentbench_credit.errors import ModelError
from agentbench_credit.policy.base import Answer, Request, Response, Sampling
from agentbench_credit.policy.bytes import byte_tokenizer
from agentbench_credit.policy.models import SERVER

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the server's key, if it wants one."""
CONCURRENT = 32
"""Most requests under way at once."""
ATTEMPTS = 6
"""Tries of one request, with growing waits between them."""
SECONDS = 600.0
"""Longest wait for one response."""
LONGEST_WAIT = 60.0
"""Seconds between two tries at most, also where the server asks for more."""

_BUSY = {408, 409, 425, 429, 500, 502, 503, 504}


class _ContextOverflowError(ModelError):
    """The server says that a conversation is longer than its model can read."""


class ServerPolicy:
    """Asks a chat server. What it samples is known as text only, so ids are bytes and log-probabilities NaN.

    Such rollouts can be evaluated and cannot be trained on.

    Args:
        name: ``openai:URL#model``, such as ``openai:http://localhost:8000/v1#Qwen3-4B``.

    Raises:
        ModelError: The name is not of that form, or the server cannot be reached or does not know the model.
    """

    def __init__(self, name: str) -> None:
        url, _, self.model = name.removeprefix(SERVER).partition("#")
        if not (url.startswith(("http://", "https://")) and self.model):
            raise ModelError("not a server and model", where=name, mend="write openai:http://HOST:PORT/v1#MODEL")
        self.policy_id, self.max_length = name, 2**31
        self.tokenizer = byte_tokenizer()
        key = os.environ.get(KEY_VARIABLE)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=CONCURRENT, max_keepalive_connections=CONCURRENT)
        self._client = httpx.Client(base_url=f"{url.rstrip('/')}/", headers=headers, timeout=SECONDS, limits=limits)
        weakref.finalize(self, self._client.close)
        known = [each["id"] for each in self._call("GET", "models").get("data", [])]
        if self.model not in known:
            raise ModelError(f"the server has no model {self.model}", where=url, mend=f"it has {', '.join(known)}")

    def stream(self, sampling: Sampling) -> ServerStream:
        """Begin to ask; a server may ignore the seed, of which it gets 31 bits."""
        return ServerStream(lambda request: self._answer(request, sampling))

    def _answer(self, request: Request, sampling: Sampling) -> Response | None:
        body = {
            "model": self.model,
            "messages": request.messages(),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": request.seed % 2**31,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k  # not in the protocol; vLLM and SGLang know it
        try:
            answer = self._call("POST", "chat/completions", body)
        except _ContextOverflowError:
            return None
        try:
            choice = answer["choices"][0]
            text = choice["message"].get("content") or ""
            reason: Literal["stop", "length"] = "length" if choice["finish_reason"] == "length" else "stop"
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ModelError(f"not a chat completion: {str(answer)[:200]}", where=self.policy_id) from error
        ids = np.asarray(self.tokenizer.encode(text, add_special_tokens=False), dtype=np.int32)
        return Response(ids, np.full(len(ids), np.nan, np.float32), reason)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request, again while the server is busy or away."""
        for attempt in range(1, ATTEMPTS + 1):
            wait = min(0.5 * 2**attempt * (0.5 + random.random()), LONGEST_WAIT)
            try:
                reply = self._client.request(method, path, json=body)
            except httpx.TransportError as error:
                fault = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                if isinstance(error, httpx.ConnectError) and method == "GET":
                    break  # nobody is there at the start
            else:
                if reply.is_success:
                    return _parsed(reply, self.policy_id)
                fault = f"HTTP {reply.status_code}: {_message(reply)}"
                if reply.status_code == 400 and "context" in fault.lower():
                    raise _ContextOverflowError(fault, where=self.policy_id)
                if reply.status_code not in _BUSY:
                    break
                asked = reply.headers.get("retry-after", "")
                wait = min(float(asked), LONGEST_WAIT) if asked.isdecimal() else wait
            if attempt < ATTEMPTS:
                time.sleep(wait)
        mend = f"is the server running, and does it serve {self.model}? A key goes into ${KEY_VARIABLE}"
        raise ModelError(fault, where=self.policy_id, mend=mend)


class ServerStream:
    """Requests at a server, several at once.

    Args:
        ask: Returns the answer to one request.
    """

    def __init__(self, ask: Callable[[Request], Response | None]) -> None:
        self._ask = ask
        self._pool = ThreadPoolExecutor(CONCURRENT, thread_name_prefix="server")
        self._open: dict[Future[Response | None], Request] = {}

    def add(self, request: Request) -> None:
        """Send one more request, as soon as fewer than `CONCURRENT` are under way."""
        self._open[self._pool.submit(self._ask, request)] = request

    def collect(self) -> list[Answer]:
        """Wait until at least one request is answered.

        Returns:
            What has been answered.

        Raises:
            ModelError: The server cannot be reached, or refuses.
        """
        finished, _ = wait(self._open, return_when=FIRST_COMPLETED)
        return [(self._open.pop(each), each.result()) for each in list(self._open) if each in finished]

    def close(self) -> None:
        """Wait for what is under way, and send no more."""
        self._pool.shutdown(cancel_futures=True)


def _parsed(reply: httpx.Response, where: str) -> dict[str, Any]:
    try:
        answer = reply.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ModelError(f"the answer is no JSON object: {reply.text[:200]}", where=where)
    return cast(dict[str, Any], answer)


def _message(reply: httpx.Response) -> str:
    try:
        found = reply.json()
        error = found.get("error", found)
        return str(error.get("message", error) if isinstance(error, dict) else error)[:300]
    except (ValueError, AttributeError):
        return reply.text[:300]
