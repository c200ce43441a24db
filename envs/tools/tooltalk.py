"""ToolTalk: an assistant with 28 tools answers in recorded conversations (arXiv:2311.10775)."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import os
import re
import sys
import zlib
from functools import cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentbench_credit.datasets import package
from agentbench_credit.envs.tools.host import Call, View, tool_responses
from agentbench_credit.envs.tools.stand_ins import stand_ins
from agentbench_credit.errors import EnvironmentContractError

MODEL_VARIABLE = "AGENTBENCH_TOOLTALK_MODEL"
"""Environment variable with the folder, or the hub's id, of the model that compares free texts, as the package does
with ``distilbert-base-uncased``. Without it words are counted."""
SETS = ("easy", "tooltalk")
"""The folders of conversations: 28 with one call, 50 with several."""

_NOT_CALLED: dict[str, dict[str, Any]] = {
    "torch": {},
    "transformers": {"DistilBertModel": None, "DistilBertTokenizer": None},
}
"""What the package imports for comparing free texts."""
_SYSTEM = (
    "You are a helpful assistant. Here is some user data:"
    "\nlocation: {location}\ntimestamp: {timestamp}\nusername (if logged in): {username}"
)
_DIMENSIONS = 2**12
_FRESH = Random(489).getstate()  # of the package's tools


@cache
def tasks() -> dict[str, str]:
    """Return the conversations.

    Returns:
        Each conversation's data, JSON text, by its name: the easy ones first.

    Raises:
        DataSetError: The package cannot be had.
    """
    folder = package("tooltalk") / "tooltalk/data"
    files = [file for each in SETS for file in sorted((folder / each).glob("*.json"))]
    return {file.stem: json.dumps(json.loads(file.read_text(encoding="utf-8"))) for file in files}


class ToolTalkHost:
    """The host of all conversations; see `agentbench_credit.envs.tools.host.Host`.

    Played as the package's executor does: turn by turn from the recorded past. When the policy answers with a text, its
    calls of that turn are set aside, databases and clock become what the recorded calls made of them, the observation
    says what the recorded assistant did, and the recorded user goes on. The package's evaluation over the whole
    conversation decides at the end: success if every recorded call was made and no action was taken that was not.

    Free texts (an e-mail's body, an event's name) must be alike: the package compares vectors of a language model that
    comes from elsewhere, which is done if `MODEL_VARIABLE` names it. Otherwise the vectors count words, with the same
    thresholds; ``texts_compared_by_model`` is 0 then, and success comes out lower than officially for a policy that
    writes the same in other words.

    Raises:
        DataSetError: The package cannot be had.
    """

    def __init__(self) -> None:
        model = os.environ.get(MODEL_VARIABLE, "")
        sys.path.insert(0, str(package("tooltalk")))
        with stand_ins({} if model else _NOT_CALLED):
            apis = importlib.import_module("tooltalk.apis")
            texts = importlib.import_module("tooltalk.apis.utils")
            executor = importlib.import_module("tooltalk.evaluation.tool_executor")
        # The package's own place for what turns texts into vectors.
        vars(texts)["_vectorize_text"] = texts.HFVectorizer(model) if model else count_words
        self._by_model = bool(model)
        self._executor = executor.ToolExecutor(str(package("tooltalk") / "tooltalk/data/databases"))
        self._compare = self._executor.compare_api_calls
        self._executor.compare_api_calls = self._same
        self._tools = [_schema(api) for api in apis.ALL_APIS]
        self._accepts = copy.deepcopy(self._tools)
        for tool in self._accepts:
            if tool["name"] == "CreateEvent":  # the package allows as name what it means to allow as event_type
                del tool["parameters"]["properties"]["name"]["enum"]
        self._failed = 0
        self._talk: _Talk | None = None

    def system(self) -> str:
        """Return what the benchmark tells an assistant: place, time, and who is logged in."""
        data = self._current().data["metadata"]
        return _SYSTEM.format(location=data["location"], timestamp=data["timestamp"], username=data.get("username"))

    def start(self, task: str) -> View:
        """Begin a conversation; the observation is what the user says."""
        self._talk = _Talk(self._executor, task)
        return self._view(self._talk)

    def act(self, calls: list[Call], text: str) -> View:
        """Execute calls, or end the turn with a text, after which the recorded conversation goes on."""
        return self._take({"calls": calls, "text": text})

    def invalid(self, message: str) -> View:
        """Take note of calls that could not be understood: a wrong prediction, as in the package."""
        return self._take({"invalid": message})

    def gold(self) -> list[Call] | str | None:
        """Return the next recorded call, or the recorded answer if there is none in this turn any more."""
        return next(iter(self.reference()), None)

    def reference(self) -> list[list[Call] | str]:
        """Return the recorded calls and answers that are left, one a turn; nothing where success is out of reach."""
        return self._current().left()

    def snapshot(self) -> str:
        """Return the task and all turns, from which the state follows."""
        talk = self._current()
        return json.dumps({"task": talk.task, "turns": talk.turns})

    def restore(self, snapshot: str) -> View:
        """Go back to a state by playing it again."""
        saved = json.loads(snapshot)
        talk = self._talk = _Talk(self._executor, saved["task"])
        for turn in saved["turns"]:
            talk.play(turn)
        return self._view(talk)

    def _current(self) -> _Talk:
        if self._talk is None:
            raise EnvironmentContractError("no conversation is going on", mend="start a task first")
        return self._talk

    def _take(self, turn: dict[str, Any]) -> View:
        talk = self._current()
        if talk.ended:
            return self._view(talk)
        talk.play(turn)
        view = self._view(talk)
        return {**view, "reward": float(view["success"])}

    def _view(self, talk: _Talk) -> View:
        scores: dict[str, float] = {}
        if talk.ended:
            self._failed = 0
            metrics = self._executor.evaluate_predictions(talk.data)["metrics"]
            scores = {name: float(value) for name, value in metrics.items()}
            scores |= {"comparisons_failed": float(self._failed), "texts_compared_by_model": float(self._by_model)}
        return {
            "observation": talk.observation,
            "tools": self._tools,
            "accepts": self._accepts,
            "state_key": talk.state_key(),
            "reward": 0.0,
            "terminated": talk.ended,
            "success": scores.get("success") == 1.0,
            "scores": scores,
        }

    def _same(self, prediction: dict[str, Any], recorded: dict[str, Any]) -> bool:
        """Compare as the package does; arguments on which its comparison breaks are not the recorded ones."""
        try:
            return bool(self._compare(prediction, recorded))
        except Exception:
            self._failed += 1
            return False


class _Talk:
    """One conversation; all of it follows from its task and turns."""

    def __init__(self, executor: Any, task: str) -> None:
        self.task, self.data, self._executor = task, json.loads(task), executor
        self.turns: list[dict[str, Any]] = []
        self.ended = False
        self._position = -1  # of the assistant's turn in the recorded conversation
        self._history: list[dict[str, Any]] = []  # recorded calls of earlier turns
        self._pending: list[dict[str, Any]] = []  # and those of this turn that are left to do
        self._predictions: list[dict[str, Any]] = []  # of this turn
        self._lost = False  # a recorded call was left out, or an action taken that is none
        self.observation = self._go_on()

    def play(self, turn: dict[str, Any]) -> None:
        """Let a turn of the policy happen."""
        self.turns.append(turn)
        if turn.get("calls"):
            self.observation = tool_responses([self._run(call) for call in turn["calls"]])
        elif "invalid" in turn:
            self._predict({"api_name": "", "parameters": None}, None, "Failed to parse API call")
            self.observation = turn["invalid"]
        else:
            recorded = self.data["conversation"][self._position]
            recorded["predictions"] = [*self._predictions, {"role": "assistant", "text": turn["text"]}]
            self._history += recorded.get("apis", [])
            self._lost |= bool(self._pending)
            self.observation = "\n\n".join(filter(None, [_as_recorded(recorded), self._go_on()]))

    def left(self) -> list[list[Call] | str]:
        """Return what `ToolTalkHost.reference` does."""
        if self.ended or self._lost:
            return []
        now, *later = self.data["conversation"][self._position :]
        turns = [(self._pending, now)] + [(each.get("apis", []), each) for each in later if each["role"] != "user"]
        left: list[list[Call] | str] = []
        for recorded, turn in turns:
            left += [[_call(each)] for each in recorded]
            left.append(turn["text"])
        return left

    def state_key(self) -> str:
        """Return the hash of databases, session, generators, and what of the recorded calls was done."""
        generators = {name: tool.random.getstate() for name, tool in self._executor.inited_tools.items()}
        used = sorted((name, state) for name, state in generators.items() if state != _FRESH)
        done = [self._position, len(self._history), [each["request"] for each in self._pending], self._lost]
        state = [self.data["name"], done, self._executor.databases, self._executor.session_token, used]
        return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()

    def _go_on(self) -> str:
        """Go to the assistant's next turn and the state that recorded calls lead to; return what the user says."""
        said: list[str] = []
        for position, turn in enumerate(self.data["conversation"][self._position + 1 :], self._position + 1):
            if turn["role"] != "user":
                self._position, self._predictions = position, []
                self._pending = list(turn.get("apis", []))
                self._executor.init_conversation_state(self.data["metadata"], self._history, self.data["user"])
                return "\n".join(said)
            said.append(turn["text"])
        self.ended = True
        return "\n".join(said)

    def _run(self, call: Call) -> str:
        arguments = copy.deepcopy(call["arguments"])
        try:
            request, answer = self._executor.execute_tool(call["name"], arguments)
        except Exception as error:  # its own net is too wide for some arguments
            request = {"api_name": call["name"], "parameters": arguments}
            answer = {"response": None, "exception": str(error)}
        self._predict(request, answer["response"], answer["exception"])
        return json.dumps(answer, default=str)

    def _predict(self, request: dict[str, Any], response: Any, exception: str | None) -> None:
        prediction = {"role": "api", "request": request, "response": response, "exception": exception}
        self._predictions.append(prediction)
        for each in self._pending:
            if self._executor.compare_api_calls(prediction, each):
                self._pending.remove(each)
                return
        self._lost |= exception is None and self._executor.is_action(request["api_name"])


def count_words(text: str) -> NDArray[np.float64]:
    """Return how often each word occurs in a text, words being told apart by their hash.

    Args:
        text: The text; capitals do not matter.

    Returns:
        Counts [4096]; a text without words has a place of its own.
    """
    words = re.findall(r"\w+", text.lower()) or [""]
    places = [zlib.crc32(word.encode()) % _DIMENSIONS for word in words]
    return np.bincount(places, minlength=_DIMENSIONS).astype(np.float64)


def _schema(api: Any) -> dict[str, Any]:
    known = api.parameters.items()
    properties = {name: {key: each[key] for key in each if key != "required"} for name, each in known}
    required = [name for name, each in known if each["required"]]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": api.__name__, "description": api.description, "parameters": parameters}


def _call(recorded: dict[str, Any]) -> Call:
    """Return a recorded call as a policy makes it: the session is the executor's business."""
    request = recorded["request"]
    arguments = {name: value for name, value in request["parameters"].items() if name != "session_token"}
    return {"name": request["api_name"], "arguments": arguments}


def _as_recorded(turn: dict[str, Any]) -> str:
    """Return what the recorded assistant did in a turn."""
    lines = ["The recorded conversation goes on. In it the assistant did this:"]
    for each in turn.get("apis", []):
        answer = {"response": each["response"], "exception": each["exception"]}
        lines.append(f"{json.dumps(_call(each))} with the result {json.dumps(answer)}")
    return "\n".join([*lines, f"It said: {turn['text']}"])
