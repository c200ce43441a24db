"""Tool calls: every format, every kind of fault, and nothing of a response is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.errors import ConfigError
from agentbench_credit.policy.tool_calls import LONGEST, STYLES, Call, Parsed, describe_tools, format_calls
from agentbench_credit.policy.tool_calls import parse_tool_calls as parse

TEXT = {"type": "string"}


def tool(name: str, required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": f"Does {name}.", "parameters": parameters}


TOOLS = [
    tool("ls", a={"type": "boolean"}),
    tool("cd", ("folder",), folder=TEXT),
    tool("mv", ("source", "destination"), source=TEXT, destination=TEXT),
    tool("post", text=TEXT, tags={"type": "array", "items": TEXT}, count={"type": "integer"}, x={"type": "number"}),
    tool("rm"),
    tool("any", value={}),
    tool("set", mode={"enum": ["on", "off"]}, at={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
]


def call(name: str, **arguments: Any) -> Call:
    return {"name": name, "arguments": arguments}


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def cause(parsed: Parsed) -> str | None:
    assert parsed.error is None or (parsed.calls == () and parsed.text == "" and len(parsed.error.message) > 20)
    return None if parsed.error is None else parsed.error.cause


@pytest.mark.parametrize(
    ("text", "calls", "said"),
    [
        (hermes("ls", '"{\\"a\\": true}"'), [call("ls", a=True)], ""),
        (hermes("post", '{"text":"line one\nline\ttwo"}'), [call("post", text="line one\nline\ttwo")], ""),
        (f"First. {hermes('ls', '{}')}\n{hermes('rm', '{}')} Then.", [call("ls"), call("rm")], "First. \n Then."),
        (f"<think>{hermes('rm', '{}')}</think>Done.", [], "Done."),
        (f"{hermes('rm', '{}')} so</think>{hermes('ls', '{}')}", [call("ls")], ""),
        (f"<think>a<think>b</think>{hermes('rm', '{}')}</think>{hermes('ls', '{}')}", [call("ls")], ""),
        (f"{hermes('cd', json.dumps({'folder': 'x'}))}<think>was that right?</think>", [call("cd", folder="x")], ""),
        (hermes("post", '{"text": "a </tool_call> b"}'), [call("post", text="a </tool_call> b")], ""),
        ('<tool_call>{"name": "ls"}</tool_call>', [call("ls")], ""),
        (hermes("post", '{"count": 3.0, "x": 2}'), [call("post", count=3.0, x=2)], ""),
        (hermes("set", '{"mode": "on", "at": null}'), [call("set", mode="on", at=None)], ""),
        ("[ls()]", [], "[ls()]"),
        ("", [], ""),
    ],
)
def test_hermes(text: str, calls: list[Call], said: str) -> None:
    assert parse(text, TOOLS, style="hermes") == Parsed(tuple(calls), None, said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<tool_call>{"name":"ls","arguments":{"a": true}</tool_call>', "invalid_json"),
        ('<tool_call>{"name":"ls}</tool_call>', "invalid_json"),
        ('<tool_call>{"name":"ls","arguments":{}}}</tool_call>', "invalid_json"),
        (hermes("post", '{"x": NaN}'), "invalid_json"),
        (hermes("post", '{"x": -1e999}'), "invalid_json"),
        (hermes("post", '{"count": ' + "9" * 5000 + "}"), "invalid_json"),
        (hermes("any", '{"value": ' + "[" * 40_000 + "}"), "invalid_json"),
        (hermes("any", '{"value": ' + "[" * 100 + "]" * 100 + "}"), "invalid_call"),
        (hermes("post", '{"text": "\\ud83d"}'), "invalid_call"),
        ('<tool_call>{"name":"cp","arguments":{"src":"a.txt"', "truncated"),
        ('<tool_call>{"name":"ls","arguments":{}}', "truncated"),
        (f"{hermes('ls', '{}')}<tool_call>", "truncated"),
        (f"<think>{hermes('ls', '{}')}", "truncated"),
        (hermes("__import__", '{"name":"os"}'), "unknown_tool"),
        (f"{hermes('ls', '{}')}{hermes('pwd', '{}')}", "unknown_tool"),
        (hermes("cd", "{}"), "missing_argument"),
        (hermes("ls", '{"b": 1}'), "unknown_argument"),
        (hermes("ls", '{"a": 1}'), "wrong_type"),
        (hermes("post", '{"count": true}'), "wrong_type"),
        (hermes("post", '{"count": 1.5}'), "wrong_type"),
        (hermes("post", '{"tags": ["a", 1]}'), "wrong_type"),
        (hermes("set", '{"at": "x"}'), "wrong_type"),
        (hermes("set", '{"mode": "up"}'), "wrong_value"),
        (hermes("ls", '{"a": true, "a": false}'), "duplicate_key"),
        (hermes("ls", "[1]"), "invalid_call"),
        (hermes("ls", '"{\\"a\\": true"'), "invalid_json"),
        ('<tool_call>{"name":"ls","arguments":{},"x":1}</tool_call>', "invalid_call"),
        ('<tool_call>[{"name":"ls","arguments":{}}]</tool_call>', "invalid_call"),
        ('{"name":"ls","arguments":{}}', "invalid_call"),
        ('{"name":"ls","arguments":{}}</tool_call>', "invalid_call"),
        ("x" * LONGEST, "too_long"),
        (f"{hermes('ls', '{}')}{' ' * LONGEST}", "too_long"),
    ],
)
def test_hermes_faults(text: str, why: str) -> None:
    assert cause(parse(text, TOOLS, style="hermes")) == why


@pytest.mark.parametrize(
    ("text", "calls", "said"),
    [
        (
            "[cd(folder='documents'), mv(source='a [1].txt', destination='b, c')]",
            [call("cd", folder="documents"), call("mv", source="a [1].txt", destination="b, c")],
            "",
        ),
        ("Now:\n```python\n[cd('x'),\n ls()] # go\n```", [call("cd", folder="x"), call("ls")], "Now:"),
        ("```\nls(a=True)\n```", [call("ls", a=True)], ""),
        ("I list [ls()] now", [call("ls")], "I list  now"),
        ("ls()", [call("ls")], ""),
        ("[any([-1, +2.5, (None, {'k': 'v' 'w'})])]", [call("any", value=[-1, 2.5, [None, {"k": "vw"}]])], ""),
        (
            r"[post(text='C:\data \d\n', tags=['''x''', r'\n'])]",
            [call("post", text="C:\\data \\d\n", tags=["x", "\\n"])],
            "",
        ),
        ("[post(text='''```\n[rm()]\n```''')]", [call("post", text="```\n[rm()]\n```")], ""),
        ("post(text='''```\n[rm()]\n```''')", [call("post", text="```\n[rm()]\n```")], ""),
        ("<think>[rm()]</think>[]", [], ""),
        ("See [1] and (that).", [], "See [1] and (that)."),
    ],
)
def test_python(text: str, calls: list[Call], said: str) -> None:
    assert parse(text, TOOLS, style="python") == Parsed(tuple(calls), None, said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[ls(a=true)]", "invalid_python"),
        ("[any(open('/etc/passwd'))]", "invalid_python"),
        ("[any(().__class__)]", "invalid_python"),
        ("[any(f'{1}')]", "invalid_python"),
        ("[any(b'x')]", "invalid_python"),
        ("[any([x for x in 'ab'])]", "invalid_python"),
        ("[any(1 + 1)]", "invalid_python"),
        ("[any(-True)]", "invalid_python"),
        ("[any(1j)]", "invalid_python"),
        ("[any(1e999)]", "invalid_python"),
        ("[any(" + "9" * 5000 + ")]", "invalid_python"),
        ("[any({1: 2})]", "invalid_python"),
        ("[any(**{'value': 1})]", "invalid_python"),
        ("[ls(), 3]", "invalid_python"),
        ("[ls() if 1 else rm()]", "invalid_python"),
        ("[any(" + "(" * 90_000 + ")]", "invalid_python"),
        ("[any(" + "-" * 90_000 + "1)]", "invalid_python"),
        ("[any" + "()" * 45_000 + "]", "invalid_python"),
        ("[any" + ".a" * 45_000 + "()]", "invalid_python"),
        ("[any(value=" + "not " * 20_000 + "1)]", "invalid_python"),
        ("[any(']', 2, (1)]", "invalid_python"),
        ("[cd(folder='a'), mv(source='b", "truncated"),
        ("[cd(folder='a'), mv(", "truncated"),
        ("```python\n[cd(folder='a'),", "truncated"),
        ("[cd(folder='a', folder='b')]", "duplicate_key"),
        ("[cd('a', folder='b')]", "duplicate_key"),
        ("[any({'a': 1, 'a': 2})]", "duplicate_key"),
        ("[cd('a', 'b')]", "unknown_argument"),
        ("[exec('1')]", "unknown_tool"),
        ("[os.system('ls')]", "unknown_tool"),
        ("[cd(folder=1)]", "wrong_type"),
        ("[cd()]", "missing_argument"),
    ],
)
def test_python_faults(text: str, why: str) -> None:
    assert cause(parse(text, TOOLS, style="python")) == why


def test_openai() -> None:
    listed = [{"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"a": true}'}}]
    message = {"content": "I look.", "tool_calls": listed}
    assert parse(json.dumps(listed), TOOLS, style="openai").calls == (call("ls", a=True),)
    assert parse(json.dumps(message), TOOLS, style="openai") == Parsed((call("ls", a=True),), None, "I look.")
    listed[0]["function"] = {"name": "ls", "arguments": ""}
    assert parse(json.dumps(listed), TOOLS, style="openai").calls == (call("ls"),)
    assert parse("All is done.", TOOLS, style="openai") == Parsed((), None, "All is done.")
    for text, why in (
        (json.dumps(listed)[:-3], "truncated"),
        (f"{json.dumps(listed)} done", "invalid_json"),
        ('[{"name": "ls"}]', "invalid_call"),
        ('{"calls": []}', "invalid_call"),
        ('[{"function": {"name": "ls", "arguments": "{\\"a\\": "}}]', "invalid_json"),
    ):
        assert cause(parse(text, TOOLS, style="openai")) == why


@pytest.mark.parametrize("style", STYLES)
def test_nothing_of_a_response_that_was_cut_off_is_executed(style: Any) -> None:
    text = format_calls([call("ls")], style)
    assert parse(text, TOOLS, style=style).calls == (call("ls"),)
    assert cause(parse(text, TOOLS, style=style, finish_reason="length")) == "truncated"
    for end in range(1, len(text)):
        assert parse(text[:end], TOOLS, style=style).calls == ()


def test_messages_say_what_to_do() -> None:
    def message(text: str) -> str:
        return str(parse(text, TOOLS, style="hermes").error)

    assert message(hermes("lz", "{}")) == "There is no tool 'lz'. Tools: ls, cd, mv, post, rm, any, set."
    assert message(hermes("mv", '{"source": "a", "target": "b"}')) == (
        "mv has no argument 'target'. Arguments: source, destination."
    )
    assert message(hermes("post", '{"tags": ["a", 1]}')) == "Argument tags[1] of post must be string, not integer: 1."
    assert len(message(hermes("post", json.dumps({"count": "x" * 9000})))) < 200


def test_references_within_a_schema_are_followed() -> None:
    item = {"type": "object", "properties": {"id": TEXT}, "required": ["id"]}
    buy = tool("buy", items={"type": "array", "items": {"$ref": "#/$defs/Item"}})
    buy["parameters"]["$defs"] = {"Item": item, "Loop": {"$ref": "#/$defs/Loop"}}
    assert parse(hermes("buy", '{"items": [{"id": "1"}]}'), [buy], style="hermes").error is None
    assert cause(parse(hermes("buy", '{"items": [{"id": 1}]}'), [buy], style="hermes")) == "wrong_type"
    assert cause(parse(hermes("buy", '{"items": [{}]}'), [buy], style="hermes")) == "missing_argument"
    buy["parameters"]["properties"]["items"] = {"$ref": "#/$defs/Loop"}
    assert parse(hermes("buy", '{"items": 1}'), [buy], style="hermes").error is None


def test_description_of_tools() -> None:
    text = describe_tools(TOOLS[:1], "hermes")
    declared = {"type": "function", "function": TOOLS[0]}
    assert f"<tools>\n{json.dumps(declared)}\n</tools>" in text
    assert text.endswith('<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>')
    assert {json.dumps(declared) in describe_tools(TOOLS[:1], style) for style in STYLES} == {True}
    with pytest.raises(ConfigError, match="known: hermes, python, openai"):
        parse("", TOOLS, style="xml")  # type: ignore[arg-type]


characters = st.characters(exclude_categories=("Cs",))
words = st.sampled_from(["<think>", "</think>", "</tool_call>", "<tool_call>", "```", "'", '"', "\\", "]", "(", "\n"])
strings = st.lists(words | st.text(characters, max_size=5), max_size=5).map("".join)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(call, st.just("any"), value=values) | st.builds(call, st.just("post"), text=strings)


@given(st.lists(calls, max_size=3), st.sampled_from(STYLES))
def test_what_is_written_is_read(made: list[Call], style: Any) -> None:
    parsed = parse(format_calls(made, style), TOOLS, style=style)
    assert parsed == Parsed(tuple(made), None, "")
    thought = parse(f"<think>{format_calls(made, style)}</think>{format_calls(made, style)}", TOOLS, style=style)
    assert thought == parsed


TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "```", "```python\n", '{"name":"ls","arguments":']
MARKS = ["{}", "}", "[", "]", "ls(", ")", "'", '"', "\\", ",", "a=", "-", "\n", "true", "1e999", "\ud800", "\x00", ":"]
pieces = st.sampled_from([*TAGS, *MARKS])


@given(st.lists(pieces | st.text(max_size=3), max_size=12).map("".join), st.sampled_from(STYLES))
def test_no_text_raises_and_what_is_read_can_be_written(text: str, style: Any) -> None:
    parsed = parse(text, TOOLS, style=style)
    if parsed.calls:
        assert parse(format_calls(parsed.calls, style), TOOLS, style=style).calls == parsed.calls
