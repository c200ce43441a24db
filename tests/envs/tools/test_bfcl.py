"""BFCL multi-turn: the package's verdict on gold and on less, its states kept apart, and back to any of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentbench_credit.datasets import package
from agentbench_credit.env import Panel
from agentbench_credit.envs.tools import presets
from agentbench_credit.envs.tools.bfcl import STEP_LIMIT
from agentbench_credit.envs.tools.env import ToolsEnv
from agentbench_credit.envs.tools.panels import load_panel
from agentbench_credit.errors import DataSetError
from agentbench_credit.policy.tool_calls import STYLES, format_calls

# Their gold calls break the documents: a text for a number, a function before it is shown.
ODD = ("base/173", "miss_func/173", "miss_param/173", "long_context/173", "miss_func/49")


@pytest.fixture(scope="module")
def panel() -> Panel:
    try:
        package("bfcl")
    except DataSetError as error:
        pytest.skip(f"BFCL cannot be had: {error}")
    return load_panel("bfcl-multi-turn", "test")


@pytest.fixture
def env(panel: Panel) -> Iterator[ToolsEnv]:
    each = ToolsEnv(panel=panel)
    yield each
    each.close()


def call(name: str, **arguments: Any) -> str:
    return format_calls([{"name": name, "arguments": arguments}], "hermes")


def play(env: ToolsEnv, task: str, *, leave_out: int = -1) -> list[Any]:
    """Play as the expert does, but say nothing in one of the user turns; return all steps."""
    env.reset(options={"task": task})
    reference = (env.reference() or "").split("Done.")[:-1]
    taken = []
    for index, answers in enumerate(reference):
        calls = [] if index == leave_out else [f"{part}</tool_call>" for part in answers.split("</tool_call>")[:-1]]
        taken += [env.step(action) for action in (*calls, "Done.")]
    return taken


def test_the_panel_is_the_benchmark(panel: Panel) -> None:
    assert len(panel) == 800
    assert [task.id for task in panel.tasks[:5]] == [
        "base/0",
        "miss_func/0",
        "miss_param/0",
        "long_context/0",
        "base/1",
    ]
    assert panel.sha256 == "5c7ea20fb435d53dcea72529be12102846495124711c97922627a2a582cf52aa"


def test_gold_is_valid_in_every_style(panel: Panel) -> None:
    for style in STYLES:
        env = ToolsEnv(panel=panel, style=style)
        for task in (*ODD, *(task.id for task in panel.tasks[STYLES.index(style) : 600 : 60])):
            _, info = env.reset(options={"task": task})
            terminated = False
            while not terminated:
                action = env.expert_action()
                assert action, task
                _, reward, terminated, _, info = env.step(action)
                assert info["action_valid"], (task, action)
            assert (reward, info["success"], info["scores"]) == (1.0, True, {"turns_right": 1.0, "valid": 1.0}), task
        env.close()


def test_a_turn_left_out_fails(env: ToolsEnv) -> None:
    for leave_out in (0, 1, 2, 3):
        _, reward, terminated, _, info = play(env, "base/0", leave_out=leave_out)[-1]
        assert (reward, terminated, info["success"]) == (0.0, True, False)
        assert info["scores"] == {"turns_right": leave_out / 4, "valid": 0.0}
    assert play(env, "base/0", leave_out=9)[-1][4]["success"]


def test_a_withheld_function_is_shown_in_its_turn(env: ToolsEnv) -> None:
    env.reset(options={"task": "miss_func/0"})
    for text in ("a", "b"):
        _, _, _, _, info = env.step(text)
    assert "sort" not in [tool["name"] for tool in info["tools"]]
    assert env.step(call("sort", file_name="x"))[4]["call_errors"] == {"unknown_tool": 1}
    observation, _, _, _, info = env.step("It cannot be done.")
    assert observation.endswith("I have updated some more functions you can choose from. What about now?")
    assert json.loads(observation.splitlines()[0])["name"] == "sort"
    assert '"name": "sort"' in info["instruction"]
    assert env.step(call("sort", file_name="x"))[4]["action_valid"]


def test_more_answers_to_a_message_than_allowed_fail(env: ToolsEnv) -> None:
    env.reset(options={"task": "base/0"})
    steps = [env.step(call("pwd")) for _ in range(STEP_LIMIT - 1)]
    steps += [env.step("<tool_call>"), env.step(call("pwd"))]
    assert [step[2] for step in steps] == [False] * STEP_LIMIT + [True]
    assert not steps[-1][4]["success"]
    assert steps[-1][0].endswith("The conversation is over: more than 20 answers to one message.")


def test_the_state_key_knows_tools_and_position(env: ToolsEnv) -> None:
    _, info = env.reset(options={"task": "base/0"})
    keys = [info["state_key"]]
    for action in (call("pwd"), call("mkdir", dir_name="new"), call("rmdir", dir_name="new"), "<tool_call>", "Done."):
        keys.append(env.step(action)[4]["state_key"])
    start, after_reading, after_writing, undone, faulty, next_turn = keys
    assert start == after_reading == undone == faulty
    assert len({start, after_writing, next_turn}) == 3


def test_snapshots_are_exact_in_another_process(env: ToolsEnv, panel: Panel) -> None:
    other = ToolsEnv(panel=panel)
    for task in ("long_context/100", "base/150", "miss_param/60"):
        env.reset(options={"task": task})
        reference = env.reference()
        for _ in range(4):
            expected = env.step(env.expert_action() or "")
        saved = env.snapshot()
        observation, info = other.restore(saved)
        assert (observation, info) == (expected[0], expected[4])
        assert other.reference() != reference
        while not expected[2]:
            action = env.expert_action()
            assert action == other.expert_action()
            expected = env.step(action or "")
            assert other.step(action or "") == expected
        assert expected[4]["success"]
        assert other.restore(saved) == (observation, info)
    other.close()


def test_text_that_looks_like_a_call_stays_text(env: ToolsEnv) -> None:
    env.reset(options={"task": "base/0"})
    text = "run cd (folder='x'), __import__('os') and \"pwd()\"\n\\"
    observation = env.step(call("echo", content=text))[0]
    assert json.loads(observation.splitlines()[1]) == {"terminal_output": text}


def test_a_call_that_never_ends_is_undone(env: ToolsEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = presets.Preset("agentbench_credit.envs.tools.bfcl:BfclHost", turns=9, seconds=0.7)
    monkeypatch.setattr(env, "_settings", quick)
    task = next(task.id for task in env.panel if "MathAPI" in json.loads(task.data)["involved_classes"])
    _, before = env.reset(options={"task": task})
    began = time.monotonic()
    _, _, _, _, info = env.step(call("power", base=7, exponent=10**9))
    assert time.monotonic() - began < 5
    assert info["call_errors"] == {"timeout": 1}
    assert info["state_key"] == before["state_key"]
    assert "343" in env.step(call("power", base=7, exponent=3))[0]


def test_eight_conversations_at_once_score_as_one(panel: Panel) -> None:
    tasks = [task.id for task in panel.tasks[200:208]]
    alone = ToolsEnv(panel=panel)
    expected = [play(alone, task, leave_out=index % 3 - 1) for index, task in enumerate(tasks)]
    alone.close()
    several = [ToolsEnv(panel=panel) for _ in tasks]
    actions = []
    for index, (each, task) in enumerate(zip(several, tasks, strict=True)):
        each.reset(options={"task": task})
        turns = (each.reference() or "").split("Done.")[:-1]
        parts = [[] if at == index % 3 - 1 else turn.split("</tool_call>")[:-1] for at, turn in enumerate(turns)]
        actions.append([action for part in parts for action in (*(f"{text}</tool_call>" for text in part), "Done.")])
    found: list[list[Any]] = [[] for _ in tasks]
    for step in range(max(map(len, actions))):
        for each, made, todo in zip(several, found, actions, strict=True):
            made += [each.step(todo[step])] if step < len(todo) else []
    assert found == expected
    assert {steps[-1][4]["success"] for steps in found} == {True, False}
    for each in several:
        each.close()
