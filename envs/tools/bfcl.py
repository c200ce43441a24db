"""BFCL v4 multi-turn in its own process: the package's stateful classes and its checker decide, nothing is rebuilt."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import random
from collections.abc import Iterable
from functools import cache
from itertools import count
from typing import Any, cast

from agentbench_credit.env import Task
from agentbench_credit.envs.tools.bfcl_data import as_tool, data_folder, dumps, enter_package, read_lines, read_tasks
from agentbench_credit.envs.tools.host import Call, View, tool_responses
from agentbench_credit.policy.python_calls import read_python
from agentbench_credit.policy.tool_schema import BadCallError, check_call

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
"""The categories, 200 tasks each."""
STEP_LIMIT = 20
"""Answers with calls that a user turn may take; one more ends the conversation as failed, as in the package."""
DONE = "Done."
"""What the gold policy says when a user turn's calls are made."""
LONGEST_RESULT = 200_000
"""Characters of one call's result; the longest of a long-context task has about 60,000."""

Step = list[Call]
Turn = list[Step]

_conversations = count()


def tasks() -> list[Task]:
    """Return the 800 tasks, the categories taking turns, so that the first of them are a fair sample."""
    return read_tasks({category: f"BFCL_v4_multi_turn_{category}.json" for category in CATEGORIES})


class BfclHost:
    """One conversation; see `host.Host`.

    The tools' state is a function of the calls that were executed: all classes draw from generators with fixed seeds.
    A snapshot therefore holds the calls, and restoring executes them again, as the package's checker does.
    """

    def __init__(self) -> None:
        enter_package()
        evaluation = "bfcl_eval.eval_checker.multi_turn_eval"
        self._prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
        self._checker = importlib.import_module(f"{evaluation}.multi_turn_checker")
        self._utils = importlib.import_module(f"{evaluation}.multi_turn_utils")
        self._name = ""

    def start(self, task: str) -> View:
        """Begin a task."""
        self._task = task
        self._entry: dict[str, Any] = json.loads(task)
        self._turns: list[Turn] = [[]]
        self._used = 0
        self._right, self._over, self._success = 0, False, False
        self._forget(self._name)
        random.seed(0)  # no class draws from it today
        self._name = f"conversation{next(_conversations)}"
        self._load_tools()
        self._gold = [[_gold_call(text, self._all_tools) for text in turn] for turn in self._entry["gold"]]
        self._execute([])
        self._observation = self._user_message()
        return self._view()

    def system(self) -> str:
        """Return the package's instruction for models without a tool interface of their own."""
        parts = self._prompts.PROMPT_STYLE_TEMPLATES["classic"]
        return f"{parts['persona']} {parts['task']}\n\n{parts['multiturn_behavior']}"

    def act(self, calls: list[Call], text: str) -> View:
        """Execute calls, or end the user turn; what is said plays no part."""
        del text
        if self._over:
            return self._view()
        if not calls:
            return self._end_turn()
        results = self._execute(calls)
        self._turns[-1].append(copy.deepcopy(calls))
        self._observation = tool_responses([_shortened(result) for result in results])
        return self._count_step()

    def invalid(self, message: str) -> View:
        """Count an answer that was not understood as one of the turn's."""
        if self._over:
            return self._view()
        self._observation = message
        return self._count_step()

    def gold(self) -> list[Call] | str | None:
        """Return the next gold call, `DONE` at the end of a user turn, None once they do not lead to success."""
        return next(iter(self.reference()), None)

    def reference(self) -> list[list[Call] | str]:
        """Return the gold answers that are left, empty where they do not lead to success any more."""
        if self._over:
            return []
        gold = self._gold[len(self._turns) - 1]
        left = gold[_matched(gold, [call for step in self._turns[-1] for call in step]) :]
        turns = [left, *self._gold[len(self._turns) :]]
        rest = [_chunks(turn, STEP_LIMIT) for turn in turns]
        rest[0] = _chunks(left, STEP_LIMIT - self._used)
        done = self._turns[:-1]
        if not self._check([*done, [*self._turns[-1], *rest[0]], *rest[1:]]):
            return []
        answers: list[list[Call] | str] = []
        for turn in rest:
            answers += [*turn, DONE]
        return answers

    def snapshot(self) -> str:
        """Return the calls made so far, with what else cannot be had from them."""
        position = [self._used, self._right, self._over, self._success]
        return dumps([self._task, self._turns, self._observation, position])

    def restore(self, snapshot: str) -> View:
        """Start the task and make the calls again."""
        task, turns, observation, position = json.loads(snapshot)
        self.start(task)
        self._turns = []
        for turn in turns:
            self._turns.append([])
            for step in turn:
                self._execute(step)
                self._turns[-1].append(step)
        self._observation = observation
        self._used, self._right, self._over, self._success = position
        return self._view()

    def _load_tools(self) -> None:
        """Read the tools' documents; the functions that the task withholds are not shown before their turn."""
        tools = [tool for name in self._entry["involved_classes"] for tool in _documents(name)]
        self._all_tools = list({tool["name"]: tool for tool in tools}.values())

    def _tools(self) -> list[dict[str, Any]]:
        withheld = self._entry.get("missed_function", {})
        hidden = {name for turn, names in withheld.items() if int(turn) >= len(self._turns) for name in names}
        return [tool for tool in self._all_tools if tool["name"] not in hidden]

    def _accepted(self) -> list[dict[str, Any]]:
        """Return what calls are held against.

        The package holds them against nothing. Five tasks' gold calls break the documents (a text for a number, a
        function before it is shown); where they do, their turn accepts them, for it could not be solved otherwise.
        """
        accepted = {tool["name"]: tool for tool in self._tools()}
        for call in self._gold[len(self._turns) - 1]:
            tool = next(tool for tool in self._all_tools if tool["name"] == call["name"])
            try:
                check_call(call, tool)
                accepted.setdefault(call["name"], tool)
            except BadCallError:
                free = {**tool["parameters"], "properties": dict.fromkeys(tool["parameters"]["properties"])}
                accepted[call["name"]] = {**tool, "parameters": free}
        return list(accepted.values())

    def _user_message(self) -> str:
        turn = len(self._turns) - 1
        if names := self._entry.get("missed_function", {}).get(str(turn)):
            added = [tool for tool in self._all_tools if tool["name"] in names]
            text: str = self._prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
            return text.format(functions="\n".join(map(dumps, added)))
        return "\n".join(message["content"] for message in self._entry["question"][turn])

    def _execute(self, calls: Iterable[Call]) -> list[str]:
        """Execute calls on the conversation's own instances."""
        names = {tool["name"] for tool in self._all_tools}
        results, _ = self._utils.execute_multi_turn_func_call(
            [_source(call, names) for call in calls],
            self._entry["initial_config"],
            self._entry["involved_classes"],
            self._name,
            self._entry["id"],
            long_context="long_context" in self._entry["id"],
        )
        return cast(list[str], results)

    def _count_step(self) -> View:
        self._used += 1
        if self._used > STEP_LIMIT:
            self._over = True
            self._observation += f"\nThe conversation is over: more than {STEP_LIMIT} answers to one message."
        return self._view()

    def _end_turn(self) -> View:
        self._judge()
        self._used = 0
        if len(self._turns) == len(self._gold):
            self._over, self._success = True, self._right == len(self._gold)
            self._observation = "The conversation is over."
        else:
            self._turns.append([])
            self._observation = self._user_message()
        return self._view()

    def _judge(self) -> None:
        """Count the turn that ends as right if it and all before are."""
        if self._right == len(self._turns) - 1 and self._check(self._turns):
            self._right += 1

    def _check(self, turns: list[Turn]) -> bool:
        """Let the package's checker execute turns and the gold calls of as many turns, and compare."""
        name = f"check{next(_conversations)}"
        names = {tool["name"] for tool in self._all_tools}
        decoded = [[[_source(call, names) for call in step] for step in turn] for turn in turns]
        try:
            verdict = self._checker.multi_turn_checker(
                decoded, self._entry["gold"][: len(turns)], self._entry, "multi_turn", name
            )
        except Exception:  # it compares what it finds; states that it cannot compare are not equal
            return False
        finally:
            self._forget(name)
        return bool(verdict["valid"])

    def _forget(self, name: str) -> None:
        """Remove instances from the package's module, where it keeps them for ever."""
        if name:
            for key in [key for key in vars(self._utils) if key.startswith(f"{name}_")]:
                del vars(self._utils)[key]

    def _view(self) -> View:
        ended = {"turns_right": self._right / len(self._gold), "valid": float(self._success)}
        tools, accepted = self._tools(), self._accepted()
        view: View = {
            "observation": self._observation,
            "tools": tools,
            "state_key": self._key(),
            "reward": float(self._success),
            "terminated": self._over,
            "success": self._success,
            "scores": ended if self._over else {},
        }
        return view if accepted == tools else {**view, "accepts": accepted}

    def _key(self) -> str:
        """Hash the tools' state and the position: turn, gold calls made in it, whether an earlier one went wrong."""
        instances = {key: value for key, value in vars(self._utils).items() if key.startswith(f"{self._name}_")}
        states = [(type(value).__name__, _plain(value, {})) for value in instances.values()]
        turn = len(self._turns) - 1
        progress = _matched(self._gold[turn], [call for step in self._turns[-1] for call in step])
        ended = self._over and self._used <= STEP_LIMIT
        position = [self._entry["id"], turn, progress, self._right < turn, ended]
        return hashlib.sha256(dumps([position, sorted(states, key=lambda each: each[0])]).encode()).hexdigest()


def _shortened(result: str) -> str:
    return result if len(result) <= LONGEST_RESULT else f"{result[:LONGEST_RESULT]}… ({len(result)} characters in all)"


def _gold_call(text: str, tools: list[dict[str, Any]]) -> Call:
    """Read a gold call with the parser that reads the policy's."""
    calls, _ = read_python(f"[{text}]", tools)
    return calls[0]


def _matched(gold: list[Call], made: list[Call]) -> int:
    """Return how many gold calls were made in their order, whatever was called between them."""
    found = 0
    for call in made:
        found += found < len(gold) and call == gold[found]
    return found


def _chunks(calls: list[Call], steps: int) -> list[list[Call]]:
    """Return one call a step, more where there are too few steps."""
    size = max(1, -(-len(calls) // max(1, steps)))
    return [calls[at : at + size] for at in range(0, len(calls), size)]


def _source(call: Call, names: set[str]) -> str:
    """Return the expression that the package evaluates.

    It is built of a declared name and literals. Brackets in strings are written as escapes: the package puts an object
    before whatever looks like a call of a tool, also within strings.

    Raises:
        ValueError: It is no call of a declared tool, which the parser does not let through.
    """
    if call["name"] not in names or not all(name.isidentifier() for name in call["arguments"]):
        raise ValueError(f"no call of a declared tool: {call['name']!r}")
    arguments = ", ".join(f"{name}={_written(value)}" for name, value in call["arguments"].items())
    return f"{call['name']}({arguments})"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return repr(value).replace("(", "\\x28")
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_written(key)}: {_written(each)}' for key, each in value.items())}}}"
    return repr(value)


@cache
def _documents(name: str) -> tuple[dict[str, Any], ...]:
    config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
    file = data_folder() / "multi_turn_func_doc" / config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
    return tuple(map(as_tool, read_lines(file)))


def _plain(value: Any, seen: dict[int, int]) -> Any:
    """Return a state as JSON values; objects that occur again, as in a tree that knows its parents, by number."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if isinstance(value, dict):
        return [[repr(key), _plain(each, seen)] for key, each in value.items()]  # results list them in this order
    if isinstance(value, list | tuple):
        return [_plain(each, seen) for each in value]
    if not hasattr(value, "__dict__"):
        return repr(sorted(map(repr, value)) if isinstance(value, set | frozenset) else value)
    if id(value) in seen:
        return {"again": seen[id(value)]}
    seen[id(value)] = len(seen)
    return {key: _plain(each, seen) for key, each in sorted(vars(value).items()) if key != "_last_modified"}
