"""Problems with answers: how they are read, normalised and proved to be the right ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agentbench_credit.errors import DataSetError

Item = dict[str, str]
"""A problem: id, problem, answer."""


def items_sha256(items: Sequence[Item]) -> str:
    """Return the hash over ids, problems and answers in order."""
    rows = [[item["id"], item["problem"], item["answer"]] for item in items]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()


def make_items(name: str, rows: Iterable[tuple[Any, Any]]) -> tuple[Item, ...]:
    """Return items made of problems and answers.

    Args:
        name: The set, which the ids begin with.
        rows: Problems and answers as sources give them: of an answer that shows the work, what follows ``####``
            counts, and a list of answers becomes one text.

    Returns:
        The items.

    Raises:
        DataSetError: A problem or answer is missing.
    """
    items = []
    for index, (problem, answer) in enumerate(rows):
        if isinstance(answer, Iterable) and not isinstance(answer, str):
            answer = ", ".join(map(str, answer))
        item = {
            "id": f"{name}/{index}",
            "problem": _text(problem),
            "answer": _text(answer).rpartition("####")[2].strip(),
        }
        if not (item["problem"].strip() and item["answer"]):
            raise DataSetError("a problem or answer is missing", where=f"{name}, item {index}")
        items.append(item)
    return tuple(items)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines.

    Raises:
        DataSetError: The file cannot be read, or a line is torn.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataSetError(f"cannot be read ({error})", where=str(path), mend="copy it again") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise DataSetError("a line is no JSON object", where=f"{path}, line {number}", mend="copy the file again")
        rows.append(row)
    return rows


def read_items_file(name: str, path: Path) -> tuple[Item, ...]:
    """Return the items of a file of JSON lines: problem, and answer or expected_answer.

    Args:
        name: The set.
        path: The file.

    Returns:
        The items.
    """
    rows = read_json_lines(path)
    return make_items(name, ((row.get("problem"), row.get("answer", row.get("expected_answer"))) for row in rows))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
