"""Tools and calls, and whether a call keeps to its tool's JSON schema."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

Tool = Mapping[str, Any]
"""A tool: ``name``, ``description``, and ``parameters``, the JSON schema of an object."""

Cause = Literal[
    "invalid_json",
    "invalid_python",
    "invalid_call",
    "duplicate_key",
    "truncated",
    "too_long",
    "unknown_tool",
    "unknown_argument",
    "missing_argument",
    "wrong_type",
    "wrong_value",
]
"""Why calls cannot be executed: no JSON; no Python literals; JSON of another shape; a key given twice; cut off; more
text than is read; a tool, an argument that is not declared; a required one that is missing; another type; a value that
the schema excludes."""

DEEPEST = 32
"""Levels of lists and objects within an argument."""


class Call(TypedDict):
    """One tool call, as parsed."""

    name: str
    """A declared tool."""
    arguments: dict[str, Any]
    """By parameter name, JSON values."""


@dataclass(frozen=True)
class CallError:
    """Why no call of a response is executed."""

    cause: Cause
    """The kind of fault, for counting."""
    message: str
    """What is wrong and how to mend it, for the policy."""

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class BadCallError(Exception):
    """Raised while a response is read; it never leaves `parse_tool_calls`.

    Args:
        cause: The kind of fault.
        message: What is wrong and how to mend it.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.error = CallError(cause, message)


def find_tool(name: object, tools: Sequence[Tool]) -> Tool:
    """Return a declared tool.

    Raises:
        BadCallError: There is none of that name.
    """
    for tool in tools:
        if tool["name"] == name:
            return tool
    known = ", ".join(str(tool["name"]) for tool in tools) or "none"
    raise BadCallError("unknown_tool", f"There is no tool {shown(name)}. Tools: {known}.")


def check_call(call: Call, tool: Tool) -> None:
    """Hold a call's arguments against its tool's schema.

    Of JSON Schema the keywords type, properties, required, additionalProperties, items, enum, const, anyOf, oneOf,
    allOf and local $ref count; others only describe.

    Args:
        call: The call.
        tool: The tool of that name.

    Raises:
        BadCallError: An argument is unknown, missing, of another type, or not among the values that are allowed.
    """
    schema = tool.get("parameters") or {}
    _check(call["arguments"], schema, schema, call["name"], "", 0)


def shown(value: object) -> str:
    """Return a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _check(value: Any, schema: Any, root: Tool, tool: str, path: str, depth: int) -> None:
    """Check one value; `path` is its place within the arguments, empty for all of them."""
    schema = _resolve(schema, root)
    if not isinstance(schema, Mapping):
        return
    where = f"argument {path} of {tool}" if path else f"the arguments of {tool}"
    if depth > DEEPEST:
        raise BadCallError("wrong_value", f"The nesting in {where} is deeper than {DEEPEST} levels.")
    wanted = schema.get("type")
    if wanted is not None:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        if not any(_is(value, name) for name in names):
            what = f"must be {' or '.join(map(str, names))}, not {_type(value)}"
            raise BadCallError("wrong_type", f"{where[0].upper()}{where[1:]} {what}: {shown(value)}.")
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(_same(value, each) for each in allowed):
        what = f"must be one of {', '.join(map(repr, allowed))}, not {shown(value)}"
        raise BadCallError("wrong_value", f"{where[0].upper()}{where[1:]} {what}.")
    for part in schema.get("allOf", ()):
        _check(value, part, root, tool, path, depth)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        _check_any(value, choices, root, tool, path, depth)
    if isinstance(value, dict):
        _check_object(value, schema, root, tool, path, depth)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, schema.get("items"), root, tool, f"{path}[{index}]", depth + 1)


def _check_object(value: dict[str, Any], schema: Tool, root: Tool, tool: str, path: str, depth: int) -> None:
    properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
    prefix = f"{path}." if path else ""
    if (not path and others is None) or others is False:  # tools take no argument that they do not declare
        for name in value:
            if name not in properties:
                known = ", ".join(properties) or "none"
                text = f"{tool} has no argument {shown(prefix + name)}. Arguments: {known}."
                raise BadCallError("unknown_argument", text)
    for name in schema.get("required") or ():
        if name not in value:
            raise BadCallError("missing_argument", f"{tool} needs the argument {prefix}{name}. Ask for it if unknown.")
    for name, item in value.items():
        _check(item, properties.get(name, others), root, tool, prefix + name, depth + 1)


def _check_any(value: Any, choices: Sequence[Any], root: Tool, tool: str, path: str, depth: int) -> None:
    first: BadCallError | None = None
    for choice in choices:
        try:
            _check(value, choice, root, tool, path, depth + 1)
        except BadCallError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _resolve(schema: Any, root: Tool) -> Any:
    """Follow references such as ``#/$defs/Item``."""
    for _ in range(DEEPEST):
        if not (isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str)):
            return schema
        found: Any = root
        for part in schema["$ref"].removeprefix("#").strip("/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        schema = found
    return None


def _is(value: Any, name: str) -> bool:
    if name == "integer":
        return _is(value, "number") and value == math.floor(value)
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    kinds: dict[str, type] = {"string": str, "boolean": bool, "array": list, "object": dict, "null": type(None)}
    return name not in kinds or isinstance(value, kinds[name])


def _type(value: Any) -> str:
    names = ("null", "boolean", "integer", "number", "string", "array", "object")
    return next(name for name in names if _is(value, name))


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
