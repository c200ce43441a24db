"""From a response to tool calls and back, in the formats that models write; nothing of a response is ever evaluated."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from agentbench_credit.errors import ConfigError
from agentbench_credit.policy import python_calls
from agentbench_credit.policy.tool_schema import (
    DEEPEST,
    BadCallError,
    Call,
    CallError,
    Cause,
    Tool,
    check_call,
    find_tool,
    shown,
)

if TYPE_CHECKING:
    from agentbench_credit.trajectory import FinishReason

__all__ = [
    "Call",
    "CallError",
    "Cause",
    "Parsed",
    "Style",
    "Tool",
    "describe_tools",
    "format_calls",
    "parse_tool_calls",
]

Style = Literal["hermes", "python", "openai"]
"""``hermes``: JSON in ``<tool_call>`` tags, as Qwen3 writes; ``python``: a list of calls; ``openai``: the JSON list
``tool_calls`` of a server, with arguments as text."""
STYLES: tuple[Style, ...] = get_args(Style)

Reader = Callable[[str, Sequence[Tool]], tuple[list[Call], str]]

LONGEST = 100_000
"""Characters; as many or more are not read."""


@dataclass(frozen=True)
class Parsed:
    """What a response says."""

    calls: tuple[Call, ...]
    """The calls in their order; none if any of them is faulty."""
    error: CallError | None
    """Why there are none, None if nothing is wrong."""
    text: str
    """What is said beside the calls, without the reasoning; empty where there is an error."""


def parse_tool_calls(text: str, tools: Sequence[Tool], *, style: Style, finish_reason: FinishReason = "stop") -> Parsed:
    """Read the calls of a response.

    Calls are executed all or not at all: one that is faulty, or may be incomplete, makes the response an error. Calls
    within reasoning (``<think>…</think>``, also where the prompt opened it) are no calls.

    Args:
        text: The response; whatever it is, nothing is raised.
        tools: The declared tools.
        style: How calls are written.
        finish_reason: ``"length"`` if the response was cut off; nothing of it is executed then.

    Returns:
        Calls, error and text.

    Raises:
        ConfigError: There is no such style.
    """
    reader = _READERS.get(style)
    if reader is None:
        raise ConfigError(f"no style {style!r}", mend=f"known: {', '.join(STYLES)}")
    try:
        calls, said = _checked(text, tools, reader, finish_reason)
    except BadCallError as bad:
        return Parsed((), bad.error, "")
    return Parsed(tuple(calls), None, said)


def _checked(text: str, tools: Sequence[Tool], read: Reader, finish_reason: FinishReason) -> tuple[list[Call], str]:
    if len(text) >= LONGEST:
        raise BadCallError("too_long", f"The answer has {len(text)} characters. Answer with less than {LONGEST}.")
    text, complete = _without_reasoning(text)
    if not complete or finish_reason != "stop":
        raise BadCallError("truncated", "The answer was cut off; nothing of it was executed. Answer more briefly.")
    calls, said = read(text, tools)
    for call in calls:
        check_call(call, find_tool(call["name"], tools))
        _check_text(call)
    return calls, said


def format_calls(calls: Sequence[Call], style: Style) -> str:
    """Return calls as text that `parse_tool_calls` reads; its inverse.

    Args:
        calls: The calls.
        style: How to write them.

    Returns:
        The text, empty for no calls.

    Raises:
        ConfigError: There is no such style.
    """
    if not calls:
        return ""
    if style == "hermes":
        written = (json.dumps({"name": c["name"], "arguments": c["arguments"]}, ensure_ascii=False) for c in calls)
        return "\n".join(f"<tool_call>\n{_escaped(each, _IN_JSON)}\n</tool_call>" for each in written)
    if style == "python":
        return _escaped(python_calls.write_python(calls), _IN_PYTHON)
    if style == "openai":
        listed = []
        for index, call in enumerate(calls):
            function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
            listed.append({"id": f"call_{index}", "type": "function", "function": function})
        return _escaped(json.dumps(listed, ensure_ascii=False), _IN_JSON)
    raise ConfigError(f"no style {style!r}", mend=f"known: {', '.join(STYLES)}")


def describe_tools(tools: Sequence[Tool], style: Style) -> str:
    """Return the part of a system prompt that lists tools and says how to call them.

    Args:
        tools: The tools.
        style: ``"hermes"`` gives the words of the Qwen3 chat template, which are those of Hermes.

    Returns:
        The text.
    """
    lines = "\n".join(json.dumps(_declared(tool), ensure_ascii=False) for tool in tools)
    head = (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
        f"function signatures within <tools></tools> XML tags:\n<tools>\n{lines}\n</tools>\n\n"
    )
    if style == "hermes":
        return (
            f"{head}For each function call, return a json object with function name and arguments within "
            '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
            "<args-json-object>}\n</tool_call>"
        )
    if style == "python":
        return (
            f"{head}To call functions, answer with a Python list of calls and nothing else:\n"
            "[function_name(argument='value', other=1), function_name()]\nArguments are literals."
        )
    return (
        f"{head}To call functions, answer with a JSON list and nothing else:\n"
        '[{"type": "function", "function": {"name": <function-name>, "arguments": <JSON object as a string>}}]'
    )


def _declared(tool: Tool) -> dict[str, Any]:
    kept = {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
    return {"type": "function", "function": kept}


_MARKERS = re.compile(r"<(?=/?(?:think|tool_call|action)>)")


_IN_JSON, _IN_PYTHON = r"\\u003c", r"\\x3c"


def _escaped(text: str, bracket: str) -> str:
    """Write the beginning of a tag within a string otherwise, so that it is none."""
    return _MARKERS.sub(bracket, text)


def _without_reasoning(text: str) -> tuple[str, bool]:
    """Return a response without its reasoning, and whether the reasoning came to its end."""
    kept: list[str] = []
    depth, at = 0, 0
    for tag in re.finditer(r"<(/?)think>", text):
        if depth == 0:
            kept.append(text[at : tag.start()])
        if not tag[1]:
            depth += 1
        elif depth:
            depth -= 1
        else:  # the prompt opened it
            kept.clear()
        at = tag.end()
    return "".join([*kept, text[at:] if depth == 0 else ""]).strip(), depth == 0


_BLANKS = re.compile(r"\s*")
_TAG = re.compile(r"</?tool_call>")
_HERMES = 'Write each as <tool_call>{"name": …, "arguments": {…}}</tool_call>.'


def _read_hermes(text: str, tools: Sequence[Tool]) -> tuple[list[Call], str]:
    del tools
    calls: list[Call] = []
    rest: list[str] = []
    at = 0
    while tag := _TAG.search(text, at):
        if tag[0] != "<tool_call>":
            raise BadCallError("invalid_call", f"There is a </tool_call> without its beginning. {_HERMES}")
        rest.append(text[at : tag.start()])
        value, at = _tagged(text, tag.end())
        calls.append(_shape(value, {"name", "arguments"}))
    rest.append(text[at:])
    said = "".join(rest).strip()
    if said.startswith("{") and not calls and '"name"' in said and '"arguments"' in said:
        raise BadCallError("invalid_call", f"A call stands outside the tags. {_HERMES}")
    return calls, said


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _tagged(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value after an opening tag, and where its closing tag ends."""
    start = _after_blanks(text, start)
    closing = text.find("</tool_call>", start)
    try:
        value, end = _decode(text, start)
    except BadCallError as bad:
        if closing < 0:
            raise BadCallError("truncated", f"A call has no end; nothing was executed. {_HERMES}") from None
        if bad.error.cause == "truncated":
            raise BadCallError("invalid_json", f"{bad} {_HERMES}") from None
        raise
    end = _after_blanks(text, end)
    if text.startswith("</tool_call>", end):
        return value, end + len("</tool_call>")
    if closing < 0:
        raise BadCallError("truncated", f"A call has no </tool_call>; nothing was executed. {_HERMES}")
    raise BadCallError("invalid_json", f"There is more than one JSON object in a call. {_HERMES}")


def _read_openai(text: str, tools: Sequence[Tool]) -> tuple[list[Call], str]:
    del tools
    if not re.match(r"\[\s*[{\]]|\{", text):
        return [], text
    value, end = _decode(text, 0)
    said: Any = ""
    if text[end:].strip():
        raise BadCallError("invalid_json", "There is text after the JSON list of calls. Answer with the list alone.")
    if isinstance(value, dict) and "tool_calls" in value:
        said = value.get("content") or ""
        value = value["tool_calls"] or []
    if not isinstance(value, list) or not isinstance(said, str):
        raise BadCallError("invalid_call", 'Answer with a list: [{"type": "function", "function": {…}}].')
    calls = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("function"), dict):
            raise BadCallError("invalid_call", f'A call needs "function", not {shown(item)}.')
        calls.append(_shape(item["function"], {"name", "arguments"}))
    return calls, said.strip()


def _shape(value: Any, keys: set[str]) -> Call:
    """Return a decoded call in one form, with arguments decoded once more where they are text."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value.keys() <= keys:
        text = f'A call is a JSON object with "name" and "arguments" only, not {shown(value)}.'
        raise BadCallError("invalid_call", text)
    arguments = value.get("arguments")
    if isinstance(arguments, str) and arguments.strip():
        arguments, _ = _decode(arguments.strip(), 0, whole=True)
    arguments = {} if arguments in (None, "") else arguments
    if not isinstance(arguments, dict):
        text = f'"arguments" of {shown(value["name"])} must be a JSON object, not {shown(arguments)}.'
        raise BadCallError("invalid_call", text)
    return {"name": value["name"], "arguments": arguments}


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadCallError("duplicate_key", f"The key {shown(twice)} is given twice. Give it once.")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadCallError("invalid_json", f"{shown(text)} is no number of JSON. Use a finite number.")
    return number


# Models write raw line ends and tabs into strings, which the standard forbids and this allows.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_finite)


def _decode(text: str, start: int, *, whole: bool = False) -> tuple[Any, int]:
    """Return the JSON value that begins at a place, and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text, start)
        if whole and end < len(text):
            raise BadCallError("invalid_json", f"There is more after the JSON: {shown(text[end:])}.")
    except json.JSONDecodeError as error:
        what = f"The call is not valid JSON ({error.msg} at {shown(text[error.pos : error.pos + 20])})."
        at_end = error.pos >= len(text) or error.msg.startswith("Unterminated string")
        cause: Cause = "truncated" if at_end and not whole else "invalid_json"
        raise BadCallError(cause, f"{what} Check quotes, commas and braces.") from None
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        text = f"The call is not usable JSON: numbers are too long, or nesting is deeper than {DEEPEST} levels."
        raise BadCallError("invalid_json", text) from None
    return value, end


def _check_text(call: Call) -> None:
    """Refuse nesting bombs and halves of characters, which no later part could write down."""
    stack: list[tuple[Any, int]] = [(call["arguments"], 0)]
    while stack:
        value, depth = stack.pop()
        if depth > DEEPEST:
            raise BadCallError("invalid_call", f"Arguments are nested deeper than {DEEPEST} levels.")
        if isinstance(value, str):
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise BadCallError("invalid_call", "A string holds half of a surrogate pair. Write the character.")
        elif isinstance(value, dict):
            stack += [(each, depth + 1) for pair in value.items() for each in pair]
        elif isinstance(value, list):
            stack += [(each, depth + 1) for each in value]


_READERS: dict[str, Reader] = {
    "hermes": _read_hermes,
    "python": python_calls.read_python,
    "openai": _read_openai,
}
