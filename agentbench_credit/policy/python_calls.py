"""Python call lists such as ``[cd(folder='a'), ls()]``: read as literals, never evaluated."""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Sequence
from typing import Any

from agentbench_credit.policy.tool_schema import DEEPEST, BadCallError, Call, Cause, Tool, shown

HOW = "Answer with a list of calls of literals only: [name(argument='text', other=1)]."

_FENCE = re.compile(r"```[ \t]*(?:(?:python|py|tool_code|tool_call)[ \t]*)?\n(.*?)(?:```|\Z)", re.DOTALL)
_LIST = re.compile(r"\[\s*(?:([A-Za-z_][\w.]*)\s*\(|\]\Z)")
_CALL = re.compile(r"[A-Za-z_][\w.]*\(")
_TOKEN = re.compile(
    r"(?P<string>[A-Za-z]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\""
    r"|'(?!'')(?:[^'\\\n]|\\.)*'|\"(?!\"\")(?:[^\"\\\n]|\\.)*\"))"
    r"|(?P<number>(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,4})"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<sign>[-+])|(?P<other>[,:=])|(?P<blank>\s+|\#[^\n]*)",
    re.DOTALL,
)
_FOREIGN_ESCAPE = re.compile(r"\\([^\\'\"abfnrtvxuUN0-7\n])|\\(.)", re.DOTALL)
_CLOSES = {"(": ")", "[": "]", "{": "}"}


def read_python(text: str, tools: Sequence[Tool]) -> tuple[list[Call], str]:
    """Read the calls of a text.

    A list of calls stands alone, in a fence of three backquotes, or after other text on a line of its own; calls
    without the brackets are taken too where they are all of the text.

    Args:
        text: A response without its reasoning.
        tools: The declared tools; their parameters' order gives arguments without a name their names.

    Returns:
        The calls, and the text around them.

    Raises:
        BadCallError: There are calls, but not in a form that can be read.
    """
    source, rest = _find(text, {str(tool["name"]) for tool in tools})
    if source is None:
        return [], rest
    try:
        node = ast.parse(_inspected(source), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        cause: Cause = "duplicate_key" if "keyword argument repeated" in what else "invalid_python"
        raise BadCallError(cause, f"The calls are not valid Python ({what}). {HOW}") from None
    if not isinstance(node, ast.List):
        raise BadCallError("invalid_python", f"The calls are no list. {HOW}")
    properties = {tool["name"]: list((tool.get("parameters") or {}).get("properties") or ()) for tool in tools}
    return [_call(each, properties) for each in node.elts], rest


def write_python(calls: Sequence[Call]) -> str:
    """Return calls as a list that `read_python` reads."""
    written = []
    for call in calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call["arguments"].items())
        written.append(f"{call['name']}({arguments})")
    return f"[{', '.join(written)}]"


def _find(text: str, names: set[str]) -> tuple[str | None, str]:
    """Return the source of a list of calls, None if there is none, and the other text.

    What begins first counts, so that a fence or a list within a string is none.
    """
    text = text.strip()
    if (name := _CALL.match(text)) and (name[0][:-1] in names or text.endswith(")")):
        return f"[{text}]", ""
    found = [(start, end, source) for start, end, source in (_fenced(text, names), _listed(text, names)) if source]
    if not found:
        return None, text
    start, end, source = min(found)
    return source, f"{text[:start]}{text[end:]}".strip()


def _fenced(text: str, names: set[str]) -> tuple[int, int, str]:
    for fence in _FENCE.finditer(text):
        inner = fence[1].strip()
        if _LIST.match(inner):
            return fence.start(), fence.end(), inner
        if (name := _CALL.match(inner)) and name[0][:-1] in names:
            return fence.start(), fence.end(), f"[{inner}]"
    return 0, 0, ""


def _listed(text: str, names: set[str]) -> tuple[int, int, str]:
    for found in _LIST.finditer(text):
        if found[1] in names or not _line_before(text, found.start()):
            source = text[found.start() :]
            source = source if source.endswith("]") else source[: _end(source) or None]
            return found.start(), found.start() + len(source), source
    return 0, 0, ""


def _line_before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at].strip()


def _end(source: str) -> int:
    """Return where the brackets that open a source are closed, 0 if they are not."""
    depth, at = 0, 0
    while found := _TOKEN.match(source, at):
        at = found.end()
        depth += (found.lastgroup == "open") - (found.lastgroup == "close")
        if depth == 0 and found.lastgroup == "close":
            return at
    return 0


def _inspected(source: str) -> str:
    """Return source made of calls and literals only; the parser, which can be made to overflow, sees no other."""
    expected: list[str] = []
    at, last = 0, ""
    parts: list[str] = []
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            if source[at] in "'\"":
                raise BadCallError("truncated", f"A string in the calls has no end; nothing was executed. {HOW}")
            raise _invalid(f"{shown(source[at])} is not allowed there")
        kind, token = str(found.lastgroup), found[0]
        at = found.end()
        if kind == "open":
            expected.append(_CLOSES[token])
            if len(expected) > DEEPEST:
                raise _invalid(f"brackets are nested deeper than {DEEPEST} levels")
            if last == "close":
                raise _invalid("a result cannot be called or indexed")
        elif kind == "close" and (not expected or expected.pop() != token):
            raise _invalid(f"there is a {token} without its beginning")
        elif kind == "sign" and last == "sign":
            raise _invalid("there are two signs in a row")
        elif kind == "string" and token[0] not in "'\"" and token.split(token[-1], 1)[0].lower() not in ("r", "u"):
            raise _invalid(f"the string {shown(token)} has a prefix")
        elif kind == "name" and keyword.iskeyword(token) and token not in ("True", "False", "None"):
            raise _invalid(f"{token} is not allowed")
        last = last if kind == "blank" else kind
        parts.append(_FOREIGN_ESCAPE.sub(_keep_escape, token) if kind == "string" else token)
    if expected:
        raise BadCallError("truncated", f"A bracket in the calls is not closed; nothing was executed. {HOW}")
    return "".join(parts)


def _keep_escape(found: re.Match[str]) -> str:
    """Double the backslash of what is no escape, as in a path; Python means the same but warns."""
    return f"\\\\{found[1]}" if found[1] else found[0]


def _invalid(what: str) -> BadCallError:
    return BadCallError("invalid_python", f"The calls cannot be read: {what}. {HOW}")


def _call(node: ast.expr, properties: dict[Any, list[str]]) -> Call:
    if not isinstance(node, ast.Call):
        raise _invalid(f"{shown(ast.unparse(node))} is no call")
    name = ast.unparse(node.func)
    arguments: dict[str, Any] = {}
    known = properties.get(name)
    if known is not None and len(node.args) > len(known):
        text = f"{name} takes {len(known)} arguments, not {len(node.args)}: {', '.join(known) or 'none'}."
        raise BadCallError("unknown_argument", text)
    for key, value in zip(known or map(str, range(len(node.args))), node.args, strict=False):
        arguments[key] = _literal(value)
    for each in node.keywords:
        if each.arg is None:
            raise _invalid("** is not allowed")
        if each.arg in arguments:
            raise BadCallError("duplicate_key", f"{name} is given the argument {each.arg} twice. Give it once.")
        arguments[each.arg] = _literal(each.value)
    return {"name": name, "arguments": arguments}


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | str() | None as value):
            return value
        case ast.Constant(value=int() | float() as number):
            return _finite(number)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as number)):
            if not isinstance(number, bool):
                return _finite(-number if isinstance(sign, ast.USub) else number)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return _dictionary(keys, values)
        case ast.Name(id="true" | "false" | "null" as name):
            raise _invalid(f"{name} is no Python; write True, False or None")
    raise _invalid(f"{shown(ast.unparse(node))} is no literal")


def _dictionary(keys: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise _invalid("a key of a dict is no string")
        if key.value in found:
            raise BadCallError("duplicate_key", f"The key {shown(key.value)} is given twice. Give it once.")
        found[key.value] = _literal(value)
    return found


def _finite(number: float) -> float:
    if isinstance(number, float) and not math.isfinite(number):
        raise _invalid("a number is too large")
    return number
