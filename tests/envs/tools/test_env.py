"""Tool use as an environment: what is said about calls, what a benchmark that misbehaves leaves behind."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tools_parts
from agentbench_credit.envs.tools import presets
from agentbench_credit.envs.tools.env import ToolsEnv
from agentbench_credit.envs.tools.panels import load_panel
from agentbench_credit.envs.tools.presets import Preset
from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.policy.tool_calls import STYLES, format_calls
from agentbench_credit.service import ServiceCallError


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    settings = Preset("tools_parts:Counting", turns=6, seconds=0.5, has_user=True)
    monkeypatch.setitem(presets.PRESETS, "counting", settings)
    made: list[ToolsEnv] = []

    def make(**kwargs: Any) -> ToolsEnv:
        made.append(ToolsEnv("counting", panel=tools_parts.PANEL, **kwargs))
        made[-1].reset(options={"task": "two"})
        return made[-1]

    yield make
    for env in made:
        env._service.kill()


def call(name: str, style: Any = "hermes", **arguments: Any) -> str:
    return format_calls([{"name": name, "arguments": arguments}], style)


@pytest.mark.parametrize("style", STYLES)
def test_the_expert_wins_in_every_style(counting: Any, style: Any) -> None:
    env = counting(style=style)
    _, info = env.reset(options={"task": "three"})
    assert info["instruction"].startswith("Count.\n\n# Tools")
    assert info["system"] == "Count."
    assert [tool["name"] for tool in info["tools"]][:2] == ["add", "sleep"]
    reference = env.reference()
    actions = []
    terminated = False
    while not terminated:
        actions.append(env.expert_action())
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        assert info["action_valid"]
    assert reference == "\n".join(actions)
    assert (observation, reward, truncated, info["success"]) == ("The user heard: Done.", 1.0, False, True)
    assert info["metrics"] == {"exact": 1.0, "call_errors": 0.0}
    assert env.reference() is env.expert_action() is None
    assert env.step(call("add", by=1))[:4] == (observation, 0.0, True, False)


def test_faulty_calls_are_told_counted_and_change_nothing(counting: Any) -> None:
    env = counting()
    _, _, _, _, first = env.step(call("add", by=1))
    for text, part, counted in (
        (call("add"), "needs the argument by", {"missing_argument": 1}),
        (call("add", by="1"), "must be integer", {"missing_argument": 1, "wrong_type": 1}),
        (call("add", by=1)[:-3], "no </tool_call>", {"missing_argument": 1, "wrong_type": 1, "truncated": 1}),
    ):
        observation, _, terminated, _, info = env.step(text)
        assert observation.startswith("Error: ")
        assert part in observation
        assert (info["action_valid"], terminated, info["call_errors"]) == (False, False, counted)
        assert info["state_key"] == first["state_key"]
    assert info["metrics"] == {
        "call_errors": 3.0,
        "call_errors.missing_argument": 1.0,
        "call_errors.wrong_type": 1.0,
        "call_errors.truncated": 1.0,
    }
    cut = env.step(call("add", by=1), finish_reason="length")
    assert (cut[4]["call_errors"]["truncated"], cut[4]["state_key"]) == (2, first["state_key"])
    assert env.step(call("add", by=5))[0] == "6"
    assert env.reset(options={"task": "two"})[1]["call_errors"] == {}


@pytest.mark.parametrize(("name", "cause"), [("sleep", "timeout"), ("leave", "crash"), ("fail", "crash")])
def test_calls_that_break_the_benchmark_are_undone(counting: Any, name: str, cause: str) -> None:
    env = counting()
    _, _, _, _, before = env.step(call("add", by=1))
    both = f"{call('add', by=7)}\n{call(name)}"
    observation, reward, terminated, truncated, info = env.step(both)
    assert observation.startswith("Error: What you asked for ")
    assert (reward, terminated, truncated, info["action_valid"]) == (0.0, False, False, False)
    assert info["call_errors"] == {cause: 1}
    assert info["state_key"] == before["state_key"]
    assert env.step(call("add", by=1))[0] == "2"


def test_a_process_that_ends_by_chance_is_not_the_calls_fault(counting: Any, tmp_path: Path) -> None:
    env = counting(user=f"openai:{tmp_path / 'been_here'}")
    env.step(call("add", by=1))
    observation, _, _, _, info = env.step(call("leave_once"))
    assert (observation, info["call_errors"], info["action_valid"]) == ("back again", {}, True)
    assert env.step(call("add", by=1))[0] == "2"


def test_a_user_that_cannot_be_reached_is_an_error_of_the_rollout(counting: Any) -> None:
    with pytest.raises(ServiceCallError, match="no answer"):
        counting().step(call("no_user"))


def test_snapshots_are_exact_in_other_instances(counting: Any) -> None:
    env = counting()
    env.step(call("add", by=1))
    expected = env.step(call("add"))
    saved = pickle.loads(pickle.dumps(env.snapshot()))
    other = counting()
    observation, info = other.restore(saved)
    assert (observation, info) == (expected[0], expected[4])
    assert env.step(call("add", by=1)) == other.step(call("add", by=1))
    other.step("")
    assert other.restore(saved) == (observation, info)
    with pytest.raises(EnvironmentContractError, match="cannot restore a str"):
        env.restore("x")


def test_the_turn_limit_and_what_tokenizers_cannot_take(counting: Any) -> None:
    env = counting()
    assert env.step(call("mumble"))[0] == "half ?"
    flags = [env.step(call("add", by=0))[2:4] for _ in range(6)]
    assert flags == [(False, False)] * 4 + [(False, True)] * 2
    assert env.reference() is None


def test_arguments_that_are_not_offered(counting: Any) -> None:
    for arguments, message in (
        ({"style": "xml"}, "known: hermes, python, openai"),
        ({"user": "gpt"}, "scripted or openai:URL#model"),
        ({"max_turns": 0}, "at least 1"),
    ):
        with pytest.raises(EnvironmentContractError, match=message):
            counting(**arguments)
    with pytest.raises(EnvironmentContractError, match="no tools preset 'x' — known: bfcl-multi-turn"):
        ToolsEnv("x")
    with pytest.raises(EnvironmentContractError, match="leave the argument user out"):
        ToolsEnv("bfcl-multi-turn", user="openai:http://localhost#m")
    with pytest.raises(EnvironmentContractError, match="for testing alone"):
        load_panel("bfcl-multi-turn", "train")
    with pytest.raises(EnvironmentContractError, match="call reset"):
        ToolsEnv("counting", panel=tools_parts.PANEL).step("")
