"""BFCL single-turn: one answer, the package's verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentbench_credit.datasets import package
from agentbench_credit.env import Panel
from agentbench_credit.envs.tools.env import ToolsEnv
from agentbench_credit.envs.tools.panels import load_panel
from agentbench_credit.errors import DataSetError
from agentbench_credit.policy.tool_calls import STYLES, format_calls

PRESET = "bfcl-single-turn"


@pytest.fixture(scope="module")
def panel() -> Panel:
    try:
        package("bfcl")
    except DataSetError as error:
        pytest.skip(f"BFCL cannot be had: {error}")
    return load_panel(PRESET, "test")


@pytest.fixture
def env(panel: Panel) -> Iterator[ToolsEnv]:
    each = ToolsEnv(PRESET, panel=panel)
    yield each
    each.close()


def answer(env: ToolsEnv, task: str, *calls: tuple[str, dict[str, Any]]) -> tuple[bool, bool, bool]:
    """Whether an answer ends the task, is understood, and is right."""
    env.reset(options={"task": task})
    text = format_calls([{"name": name, "arguments": arguments} for name, arguments in calls], "hermes")
    _, reward, terminated, _, info = env.step(text)
    assert reward == info["success"]
    return terminated, info["action_valid"], info["success"]


def test_all_gold_answers_are_right(panel: Panel) -> None:
    assert len(panel) == 1240
    assert panel.sha256 == "d902b0c030ed95b0472b0c8691502f12c08603cdb30634e1f12e95f39f9e59f7"
    for style in STYLES:
        env = ToolsEnv(PRESET, panel=panel, style=style)
        wrong = []
        for task in panel.tasks[STYLES.index(style) :: len(STYLES)]:
            env.reset(options={"task": task.id})
            _, _, terminated, _, info = env.step(env.expert_action() or "")
            wrong += [] if terminated and info["success"] and info["action_valid"] else [task.id]
        env.close()
        assert wrong == []


def test_what_is_wrong_and_what_does_not_matter(env: ToolsEnv) -> None:
    area = "calculate_triangle_area"
    understood, refused = (True, True), (True, False)
    assert answer(env, "simple_python/0", (area, {"base": 10, "height": 5})) == (*understood, True)
    assert answer(env, "simple_python/0", (area, {"base": 10, "height": 5, "unit": "Units"})) == (*understood, True)
    assert answer(env, "simple_python/0", (area, {"base": 10, "height": 6})) == (*understood, False)
    assert answer(env, "simple_python/0", (area, {"base": 10})) == (*understood, False)
    assert answer(env, "simple_python/0", (area, {"base": "10", "height": 5})) == (*understood, False)
    assert answer(env, "simple_python/0", (area, {"base": 10, "height": 5, "x": 1})) == (*understood, False)
    assert answer(env, "simple_python/0", *[(area, {"base": 10, "height": 5})] * 2) == (*understood, False)
    assert answer(env, "simple_python/0", ("area", {"base": 10, "height": 5})) == (*refused, False)
    assert answer(env, "simple_python/0") == (*understood, False)
    play = [
        ("spotify.play", {"artist": name, "duration": time}) for name, time in (("Maroon 5", 15), ("Taylor Swift", 20))
    ]
    assert answer(env, "parallel/0", *play) == (*understood, True)
    assert answer(env, "parallel/0", *play[:1]) == (*understood, False)


def test_where_no_function_helps_none_is_called(env: ToolsEnv) -> None:
    index = ("determine_body_mass_index", {"weight": 10.0, "height": 5.0})
    assert answer(env, "irrelevance/0") == (True, True, True)
    assert answer(env, "irrelevance/0", index) == (True, True, False)
    assert answer(env, "irrelevance/0", ("made_up", {})) == (True, False, False)
    saved = env.snapshot()
    other = ToolsEnv(PRESET, panel=env.panel)
    assert other.restore(saved)[1]["success"] is False
    assert other.step("no")[1:4] == (0.0, True, False)
    other.close()
