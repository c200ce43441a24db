"""BFCL v4 single-turn: one answer to one question, judged by the package's comparison with possible answers."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from agentbench_credit.env import Task
from agentbench_credit.envs.tools.bfcl_data import as_tool, dumps, enter_package, read_tasks
from agentbench_credit.envs.tools.host import Call, View
from agentbench_credit.envs.tools.stand_ins import stand_ins

CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
"""The categories; in the last one no function helps, and none is to be called."""
DECLINED = "None of the functions can do that."
"""What the gold policy says then."""

# The package asks for each model whether its server forbids dots in names. Names stay here as they are.
_MODELS: dict[str, Any] = {"MODEL_CONFIG_MAPPING": defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))}


def tasks() -> list[Task]:
    """Return the tasks, the categories mixed evenly."""
    return read_tasks({category: f"BFCL_v4_{category}.json" for category in CATEGORIES})


class BfclSingleHost:
    """One question; see `host.Host`. The first answer ends it, also one whose calls cannot be understood."""

    def __init__(self) -> None:
        enter_package()
        with stand_ins({"bfcl_eval.constants.model_config": _MODELS}):
            self._checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        self._python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON
        self._over, self._success = False, False
        self._prompts = importlib.import_module("bfcl_eval.constants.default_prompts")

    def start(self, task: str) -> View:
        """Begin a task."""
        return self.restore(dumps([task, None]))

    def system(self) -> str:
        """Return the package's instruction for models without a tool interface of their own."""
        parts = self._prompts.PROMPT_STYLE_TEMPLATES["classic"]
        return f"{parts['persona']} {parts['task']}"

    def act(self, calls: list[Call], text: str) -> View:
        """Judge the answer."""
        del text
        self._success = self._success if self._over else self._is_right(calls)
        self._over = True
        return self._view()

    def invalid(self, message: str) -> View:
        """End with a wrong answer."""
        del message
        self._success, self._over = self._success and self._over, True
        return self._view()

    def gold(self) -> list[Call] | str | None:
        """Return an answer that is right."""
        return next(iter(self.reference()), None)

    def reference(self) -> list[list[Call] | str]:
        """Return an answer that is right, nothing after the end."""
        if self._over:
            return []
        gold = self._entry["gold"]
        required = {tool["name"]: tool["parameters"].get("required", ()) for tool in self._tools}
        return [DECLINED] if gold is None else [[_first(answer, required) for answer in gold]]

    def snapshot(self) -> str:
        """Return the task and how it ended."""
        return dumps([self._task, self._success if self._over else None])

    def restore(self, snapshot: str) -> View:
        """Go back to a state."""
        self._task, success = json.loads(snapshot)
        self._over, self._success = success is not None, bool(success)
        self._entry: dict[str, Any] = json.loads(self._task)
        self._tools = [as_tool(document) for document in self._entry["function"]]
        return self._view()

    def _is_right(self, calls: list[Call]) -> bool:
        gold, category = self._entry["gold"], self._entry["id"].rpartition("_")[0]
        if gold is None or not calls:
            return gold is None and not calls
        made = [{call["name"]: call["arguments"]} for call in calls]
        try:
            verdict = self._checker.ast_checker(self._entry["function"], made, gold, self._python, category, "any")
        except Exception:  # it expects values of the kind that the possible answers have
            return False
        return bool(verdict["valid"])

    def _view(self) -> View:
        key = hashlib.sha256(dumps([self._entry["id"], self._success]).encode())
        messages = [message["content"] for turn in self._entry["question"] for message in turn]
        return {
            "observation": "The conversation is over." if self._over else "\n".join(messages),
            "tools": self._tools,
            "accepts": [{**tool, "parameters": _names_only(tool["parameters"])} for tool in self._tools],
            "state_key": key.hexdigest(),
            "reward": float(self._success),
            "terminated": self._over,
            "success": self._success,
            "scores": {"valid": float(self._success)} if self._over else {},
        }


def _names_only(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that gives parameters their order and leaves the rest to the package's comparison."""
    return {"type": "object", "properties": dict.fromkeys(schema["properties"]), "additionalProperties": True}


def _first(answer: dict[str, dict[str, list[Any]]], required: Mapping[str, Iterable[str]]) -> Call:
    """Return the first of the possible answers for a call, without what may be left out: an empty text says so."""
    ((name, arguments),) = answer.items()
    return {"name": name, "arguments": _chosen(arguments, required.get(name, ()))}


def _chosen(arguments: Mapping[str, list[Any]], required: Iterable[str] = ()) -> dict[str, Any]:
    kept = {key: values for key, values in arguments.items() if "" not in values or key in required}
    return {key: _filled(next((each for each in values if each != ""), "")) for key, values in kept.items()}


def _filled(value: Any) -> Any:
    """Return a possible value; those within a dict are lists of possible values again."""
    if isinstance(value, dict):
        return _chosen(value)
    return [_filled(each) if isinstance(each, dict) else each for each in value] if isinstance(value, list) else value
