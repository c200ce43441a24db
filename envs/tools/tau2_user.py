"""Who answers the agent in τ²-bench: a script, or a language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Protocol, TypedDict
from urllib.parse import urlsplit

from agentbench_credit.errors import ConfigError, ModelError

STOP = "###STOP###"
"""The user has what they want, or gives up."""
TRANSFER = "###TRANSFER###"
"""The user goes to another agent."""
OUT_OF_SCOPE = "###OUT-OF-SCOPE###"
"""The scenario does not say how to go on."""
LONGEST_TALK = 30
"""Messages after which the scripted user stops."""
ATTEMPTS = 3
"""Requests for one answer of a language model."""
TIMEOUT = 20.0
"""Seconds for one request."""

_YES = "Yes, please go ahead."
_NOTHING_MORE = "That is all I can say."
_TRANSFERRED = "transferred to a human agent"
_CONFIRM = re.compile(
    r"\bconfirm(?! your\b)|\bproceed\b|\bgo ahead\b|yes/no|\(yes\)|\b(?:shall|should|may) i\b|\b(?:like|want) me to\b"
    r"|\b(?:is|are) (?:this|that|these|everything) (?:correct|right|ok)",
    re.IGNORECASE,
)
_OBJECT = "tells?|asks?|gives?|offers?|informs?|lets?|helps?|charges?|refunds?|for|to|with|from|of|at|by|about"
_PERSONS = [
    (rf"\b({_OBJECT}) you\b(?! (?:are|were|have|want|can|would|need|do|did|should)\b)", r"\1 me"),
    (r"\byou are\b", "I am"),
    (r"\byou were\b", "I was"),
    (r"\byou name\b", "my name"),  # so misspelt in many scenarios
    (r"\byour\b", "my"),
    (r"\byours\b", "mine"),
    (r"\byourself\b", "myself"),
    (r"\byou're\b", "I'm"),
    (r"\byou\b", "I"),
]


class Said(TypedDict):
    """One message between agent and user."""

    role: str
    """``"assistant"`` or ``"user"``."""
    content: str
    """The text."""


class User(Protocol):
    """Someone whose next message depends on the conversation alone."""

    def reply(self, said: Sequence[Said]) -> str:
        """Return the next message, given all messages so far, of which the last is the agent's."""
        ...

    def memory(self, said: Sequence[Said]) -> Any:
        """Return what later replies depend on, as a JSON value."""
        ...


class ScriptedUser:
    """A user without a model: tells its scenario piece by piece, whatever it is asked. Not part of τ²-bench.

    First it gives the reason for the call. At every further message of the agent it tells the next piece: what it
    knows, what it does not know, then its instructions sentence by sentence, all turned to the first person. It says
    yes when asked to confirm, but not twice in a row. It stops when all is told and the agent says something that is no
    question, when the agent announces a transfer, or after `LONGEST_TALK` messages.

    It does not understand what is said: it answers no question in particular, judges no "if the agent …", confirms what
    is wrong, changes no mind, and stops even if nothing was done. Results with it are not comparable with published
    ones, whose users are language models; they compare policies with each other, at no cost and always the same.

    Args:
        scenario: The task's ``user_scenario``.
    """

    def __init__(self, scenario: dict[str, Any]) -> None:
        told = scenario["instructions"]
        if isinstance(told, str):
            told = {"reason_for_call": told}
        whole = [told.get(key) or "" for key in ("reason_for_call", "known_info", "unknown_info")]
        pieces = [*whole, *re.split(r"\n+|(?<=[.!?])\s+", told.get("task_instructions") or "")]
        self._pieces = [first_person(piece) for piece in pieces if re.search(r"\w", piece)]

    def reply(self, said: Sequence[Said]) -> str:
        """Return the next message, given all messages so far, of which the last is the agent's."""
        answers, last = [each["content"] for each in said if each["role"] == "user"], said[-1]["content"].lower()
        told = self._told(answers)
        if _TRANSFERRED in last:
            return TRANSFER
        if len(answers) >= LONGEST_TALK:
            return STOP
        asked = "?" in last or "confirm" in last
        if answers and asked and _CONFIRM.search(last) and answers[-1] != _YES:
            return _YES
        if told < len(self._pieces):
            return self._pieces[told]
        return _NOTHING_MORE if "?" in last else STOP

    def memory(self, said: Sequence[Said]) -> Any:
        """Return what later replies depend on: pieces told, messages said, whether the last was a yes."""
        answers = [each["content"] for each in said if each["role"] == "user"]
        return [self._told(answers), len(answers), answers[-1:] == [_YES]]

    def _told(self, answers: Sequence[str]) -> int:
        told = 0
        for answer in answers:
            told += told < len(self._pieces) and answer == self._pieces[told]
        return told


class ModelUser:
    """A user that a language model plays, as in the benchmark: its guidelines and the scenario as system text.

    Args:
        address: ``"URL#model"``, the URL being the one to which ``/chat/completions`` is appended.
        prompt: The system text.
        key: Sent as bearer token; empty if none is needed.

    Raises:
        ConfigError: The address is none.
    """

    def __init__(self, address: str, prompt: str, key: str = "") -> None:
        url, _, model = address.partition("#")
        if urlsplit(url).scheme not in ("http", "https") or not model:
            raise ConfigError(f"no user at {address!r}", mend="give openai:http://host:port/v1#model")
        self._url, self._model, self._prompt, self._key = f"{url.rstrip('/')}/chat/completions", model, prompt, key

    def reply(self, said: Sequence[Said]) -> str:
        """Return the next message, given all messages so far, of which the last is the agent's.

        Raises:
            ModelError: The endpoint does not answer, or not with a message.
        """
        other = {"user": "assistant", "assistant": "user"}
        messages = [{"role": "system", "content": self._prompt}]
        messages += [{"role": other[each["role"]], "content": each["content"]} for each in said]
        request = urllib.request.Request(
            self._url,
            json.dumps({"model": self._model, "messages": messages, "temperature": 0.0}).encode(),
            {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
        )
        for attempt in range(ATTEMPTS):
            time.sleep(attempt)
            try:
                return _ask(request)
            except urllib.error.HTTPError as error:
                error.close()
                problem = f"answers with status {error.code}"
                if error.code != 429 and error.code < 500:
                    break
            except (OSError, http.client.HTTPException) as error:
                problem = f"cannot be reached ({error})"
            except (ValueError, LookupError, TypeError, AttributeError):
                problem = "does not answer with a message"
        raise ModelError(f"the user's model {problem}", where=f"{self._url}, {self._model}", mend="is it running?")

    def memory(self, said: Sequence[Said]) -> Any:
        """Return what later replies depend on: all messages."""
        return list(said)


def stops(message: str) -> bool:
    """Tell whether a user's message ends the conversation."""
    return any(token in message for token in (STOP, TRANSFER, OUT_OF_SCOPE))


def first_person(text: str) -> str:
    """Turn ``"You want to cancel your order."`` into ``"I want to cancel my order."``; a rule of thumb, not grammar."""
    for pattern, person in _PERSONS:
        text = re.sub(pattern, person, text, flags=re.IGNORECASE)
    return re.sub(r"(^|[.!?]\s+)([a-z])", lambda match: match[1] + match[2].upper(), text.strip())


def _ask(request: urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        content = json.loads(response.read(2**20))["choices"][0]["message"]["content"]
    if not content.strip():
        raise ValueError("empty message")
    return str(content)
