"""BFCL's files: tasks with gold answers, functions' documents as JSON schemas; and the package in a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentbench_credit.datasets import package
from agentbench_credit.env import Task

MEMORY_BYTES = 4 * 2**30
"""Address space of a process that runs the package, so that a call such as ``power`` cannot fill the machine."""

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string", "list": "array", "bool": "boolean"}
_HINT = " Note that the provided function is in Python 3 syntax."


def data_folder() -> Path:
    """Return the folder of the package's data."""
    return package("bfcl") / "bfcl_eval" / "data"


def enter_package() -> None:
    """Make the package importable in this process, and bound its memory."""
    import resource  # Unix only, as services are

    folder = str(package("bfcl"))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def read_tasks(files: Mapping[str, str]) -> list[Task]:
    """Return the tasks of some categories, mixed evenly in their order.

    Args:
        files: File by category.

    Returns:
        Tasks ``category/number`` whose data is the package's entry with its gold answer as ``gold``, None if none.
    """
    placed = []
    for rank, (category, file) in enumerate(files.items()):
        answers = data_folder() / "possible_answer" / file
        gold = {each["id"]: each["ground_truth"] for each in read_lines(answers)} if answers.exists() else {}
        entries = list(read_lines(data_folder() / file))
        for index, entry in enumerate(entries):
            task = Task(f"{category}/{entry['id'].rpartition('_')[2]}", dumps({**entry, "gold": gold.get(entry["id"])}))
            placed.append(((index + 0.5) / len(entries), rank, task))
    return [task for _, _, task in sorted(placed, key=lambda each: each[:2])]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, one a line."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def as_tool(document: dict[str, Any]) -> dict[str, Any]:
    """Return a function's document as a tool; as in the package, the language and the results are told in words."""
    told = document["description"] + _HINT
    if "response" in document:
        told += f" The response field has the following schema: {dumps(document['response'])}"
    return {"name": document["name"], "description": told, "parameters": _schema(document["parameters"])}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    fixed = dict(schema)
    if isinstance(kind := schema.get("type"), str):
        fixed["type"] = _TYPES.get(kind, kind)
    if "properties" in schema:
        fixed["properties"] = {name: _schema(each) for name, each in schema["properties"].items()}
    if "items" in schema:
        fixed["items"] = _schema(schema["items"])
    return fixed


def dumps(value: object) -> str:
    """Return JSON without escapes for what is not ASCII."""
    return json.dumps(value, ensure_ascii=False)
