"""A domain of τ²-bench: its tasks, tools and policy, and databases that cost nothing to copy (arXiv:2506.07982)."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import sys
import warnings
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from agentbench_credit.datasets import package
from agentbench_credit.envs.tools.host import Call
from agentbench_credit.envs.tools.stand_ins import stand_ins

DOMAINS = ("retail", "airline")
"""The domains that are offered."""

_silent = logging.getLogger(__name__)
_silent.disabled = True
_NOT_CALLED: dict[str, dict[str, Any]] = {
    "addict": {"Dict": None},
    "deepdiff": {"DeepDiff": None},
    "dotenv": {"load_dotenv": lambda: True},
    "loguru": {"logger": _silent},
    "toml": {},
}
"""What the package imports although these domains need it not; its dotenv would read the user's ``.env``."""
_SYSTEM = "<instructions>\n{how}\n</instructions>\n<policy>\n{policy}\n</policy>"


@cache
def tasks(domain: str) -> dict[str, str]:
    """Return the tasks of a domain.

    Args:
        domain: One of `DOMAINS`.

    Returns:
        Each task's data, JSON text, by its id in the benchmark, in the benchmark's order.

    Raises:
        DataSetError: The package cannot be had.
    """
    listed = json.loads((_folder(domain) / "tasks.json").read_text(encoding="utf-8"))
    return {task["id"]: json.dumps(task, ensure_ascii=False) for task in listed}


class Domain:
    """What all conversations of a domain share; the package is loaded with it.

    Args:
        name: One of `DOMAINS`.

    Raises:
        DataSetError: The package cannot be had.
    """

    def __init__(self, name: str) -> None:
        with stand_ins(_NOT_CALLED):
            sys.path.insert(0, str(package("tau2")))
            module = importlib.import_module(f"tau2.domains.{name}.environment")
            messages = importlib.import_module("tau2.data_model.message")
            criteria = importlib.import_module("tau2.data_model.tasks")
        self._environment, self._call, self._task = module.get_environment, messages.ToolCall, criteria.Task
        pristine = self._environment()
        self._pristine = pristine.tools.db
        self.pristine_hash = database_hash(self.environment())
        schemas = (tool.openai_schema["function"] for tool in pristine.get_tools())
        self._gold_hashes: dict[str, str] = {}
        self.tools: list[dict[str, Any]] = [
            {key: schema[key] for key in ("name", "description", "parameters")} for schema in schemas
        ]
        self.writing = {name for name in pristine.tools.tools if pristine.tools.tool_type(name).value == "write"}
        """The tools that may change the database."""
        self.system = _SYSTEM.format(how=_agent_instruction(), policy=pristine.get_policy())
        """What the benchmark tells an agent before a conversation."""
        guidelines = package("tau2") / "tau2/data/tau2/user_simulator/simulation_guidelines.md"
        self._guidelines = guidelines.read_text(encoding="utf-8")

    def environment(self) -> Any:
        """Return the package's environment with a fresh database."""
        pristine = type(self._pristine)
        fresh = {name: _Records(getattr(self._pristine, name)) for name in pristine.model_fields}
        return self._environment(pristine.model_construct(**fresh))

    def run(self, environment: Any, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool as the benchmark does.

        Args:
            environment: One of `environment`.
            name: The tool.
            arguments: Its arguments.

        Returns:
            What the agent reads, and whether it is an error.
        """
        if name == "calculate" and "**" in str(arguments.get("expression")):
            return "Error: Invalid characters in expression", True  # the package computes powers for hours
        try:
            with warnings.catch_warnings(action="ignore"):  # of types that its records should not have
                message = environment.get_response(self._call(name=name, arguments=deepcopy(arguments)))
        except (ValueError, RecursionError) as error:  # a result that it cannot write down
            return f"Error: {error}", True
        return str(message.content), bool(message.error)

    def gold_hash(self, actions: list[Call]) -> str:
        """Return the hash of a database after a task's gold actions; errors among them are passed over."""
        key = json.dumps(actions)
        if key not in self._gold_hashes:
            environment = self.environment()
            for action in actions:
                self.run(environment, action["name"], action["arguments"])
            self._gold_hashes[key] = database_hash(environment)
        return self._gold_hashes[key]

    def user_prompt(self, task: dict[str, Any]) -> str:
        """Return what the benchmark tells the language model that plays a task's user."""
        scenario = self._task.model_validate(task).user_scenario
        return f"{self._guidelines}\n\n<scenario>\n{scenario}\n</scenario>".strip()


def database_hash(environment: Any) -> str:
    """Return a hash of what is not pristine in an environment's database.

    Two are equal if and only if the benchmark's own `get_db_hash`, which takes a hundred times as long, gives equal
    hashes.
    """
    database = environment.tools.db
    changed = {name: getattr(database, name).changed() for name in type(database).model_fields}
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()


class _Records(dict[str, Any]):
    """A table that shares its records with the pristine one; a record that is looked up becomes a copy first.

    Records that are only iterated over stay shared: the package's tools read those, and change what they looked up.
    """

    def __init__(self, pristine: dict[str, Any]) -> None:
        super().__init__(pristine)
        self._pristine = pristine

    def __getitem__(self, key: str) -> Any:
        record = super().__getitem__(key)
        if record is self._pristine.get(key):
            record = self[key] = deepcopy(record)
        return record

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - it would call itself

    def changed(self) -> dict[str, str]:
        """Return the records that are not as they were, as the texts that the benchmark hashes."""
        was, now = self._pristine, dict(self.items())
        keys = [key for key in was.keys() | now.keys() if was.get(key) is not now.get(key)]
        texts = {key: _text(now.get(key)) for key in keys}
        return {key: text for key, text in texts.items() if text != _text(was.get(key))}


def _text(record: Any) -> str:
    try:
        return json.dumps(record and record.model_dump(warnings=False), sort_keys=True, default=str)
    except (ValueError, RecursionError):  # a tool stored arguments that are nested too deeply
        return "unwritable"


def _folder(domain: str) -> Path:
    return package("tau2") / "tau2/data/tau2/domains" / domain


def _agent_instruction() -> str:
    """Return the benchmark's instruction, without importing its agent, which wants a client of language models."""
    source = (package("tau2") / "tau2/agent/llm_agent.py").read_text(encoding="utf-8")
    return source.partition('AGENT_INSTRUCTION = """')[2].partition('"""')[0].strip()
