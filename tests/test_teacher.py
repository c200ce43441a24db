"""Teachers' prompts made after the rollouts: who sees what, rendered as a rollout renders them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentbench_credit.errors import ConfigError, EnvironmentContractError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.prompts import Prompter, PromptMode
from agentbench_credit.policy.scripted import ScriptedPolicy
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.teacher import with_feedback, with_shuffled_references
from agentbench_credit.trajectory import Trajectory
from models import small_tokenizer

TOKENIZER = small_tokenizer()
MODES: tuple[PromptMode, ...] = ("turn", "conversation")


@dataclass
class Stairs:
    """Task "n": reach step n within three turns; "down" is refused, "die" raises; `hint` is the reference."""

    hint: str | None = None
    slippery: bool = False
    silent: bool = False
    spec: Any = field(default_factory=lambda: SimpleNamespace(id="test/Stairs-v0", kwargs={}))
    log: list[str] = field(default_factory=list)

    def _seen(self, valid: bool = True) -> tuple[str, dict[str, Any]]:
        key = f"{self.task}:{self.step_}:{self.turn if self.slippery else ''}".encode()
        info = {
            "state_key": key,
            "admissible_actions": ("up", "stay"),
            "action_valid": valid,
            "task_id": self.task,
            "instruction": f"Climb to {self.task}.",
            "success": self.step_ == int(self.task),
            "turn": self.turn,
        }
        return ("" if self.silent else f"on step {self.step_}"), info

    def reset(self, *, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        self.task, self.step_, self.turn = options["task"], 0, 0
        self.log.append(f"reset {self.task}")
        return self._seen()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "die":
            raise RuntimeError("engine lost")
        self.turn += 1
        self.step_ += action == "up"
        observation, info = self._seen(action in ("up", "stay"))
        won = info["success"]
        return observation, float(won), won, self.turn == 3 and not won, info

    def reference(self) -> str | None:
        return self.hint if self.hint is None else f"{self.hint} for {self.task}"

    def close(self) -> None:
        self.log.append("close")


STAIRS: Any = Stairs


def play(
    scripts: Sequence[tuple[str, str]], *, mode: PromptMode = "turn", history: int = 0, **env: Any
) -> tuple[list[Trajectory], Prompter]:
    """Play one rollout for each task and its actions, parted by spaces; rollouts of one task are a group."""
    prompter = Prompter(TOKENIZER, mode, history)
    played = []
    for task, actions in scripts:
        left = iter(actions.split())
        policy = ScriptedPolicy(lambda _, left=left: next(left), TOKENIZER, "scripted")
        starts = [Start(task, f"group {task}", 0)]
        make: Any = lambda: Stairs(**env)  # noqa: E731
        played += rollout(policy, make, starts, prompter=prompter, sampling=Sampling(), with_reference=True)
    return played, prompter


def texts(trajectory: Trajectory) -> list[str | None]:
    """The teacher's prompts as text."""
    shown = [turn.teacher_prompt_ids for turn in trajectory.turns]
    return [None if ids is None else str(TOKENIZER.decode(ids)) for ids in shown]


SCRIPTS = [("2", "stay up up"), ("2", "up down up"), ("2", "stay stay stay"), ("3", "up stay up")]


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_sees_another_success_of_its_group_and_else_its_own_end(mode: PromptMode) -> None:
    trajectories, prompter = play(SCRIPTS, mode=mode)
    assert [t.success for t in trajectories] == [True, True, False, False]
    taught = with_feedback(trajectories, STAIRS, prompter)
    shown = [
        "Reference: up\nup",  # of the second rollout, whose refused action is left out
        "Reference: stay\nup\nup",
        "Reference: stay\nup\nup",
        "Reference: This attempt ended with: on step 2",
    ]
    for trajectory, text in zip(taught, shown, strict=True):
        assert len(trajectory.turns) == 3
        for prompt in texts(trajectory):
            assert prompt is not None
            assert prompt.count("Reference:") == 1
            assert text in prompt
    assert "Climb to 3." in str(texts(taught[3])[0])
    for before, after in zip(trajectories, taught, strict=True):
        plain = [replace(turn, teacher_prompt_ids=None) for turn in after.turns]
        for old, new in zip(before.turns, plain, strict=True):
            assert old.prompt_ids is new.prompt_ids
            assert old.observation == new.observation


@pytest.mark.parametrize(("mode", "history"), [("turn", 0), ("turn", 2), ("conversation", 0)])
def test_prompts_are_those_of_a_rollout_with_a_reference(mode: PromptMode, history: int) -> None:
    """Two tasks whose hints are swapped: each group then sees what the other's rollouts saw."""
    trajectories, prompter = play([("2", "stay up up"), ("3", "up stay up")], mode=mode, history=history, hint="go")
    taught = with_shuffled_references(trajectories, STAIRS, prompter, seed=0)
    for trajectory, other in zip(taught, ("3", "2"), strict=True):
        replayed = [(trajectory.task_id, " ".join(turn.action for turn in trajectory.turns))]
        (expected,), _ = play(replayed, mode=mode, history=history, hint=f"go for {other} or not")
        for new, own in zip(texts(trajectory), texts(expected), strict=True):
            assert own is not None
            assert new == own.replace(f"go for {other} or not for {trajectory.task_id}", f"go for {other}")


def test_crashed_empty_and_silent_rollouts_have_no_teacher() -> None:
    with pytest.warns(UserWarning, match="engine lost"):
        trajectories, prompter = play([("2", "up die"), ("3", "stay up stay")], silent=True, hint="go")
    assert all(turn.teacher_prompt_ids is not None for t in trajectories for turn in t.turns)
    empty = replace(trajectories[1], turns=())
    environments: list[Stairs] = []

    def make() -> Any:
        environments.append(Stairs(silent=True))
        return environments[-1]

    taught = with_feedback([*trajectories, empty], make, prompter)
    assert [texts(t) for t in taught] == [[None], [None] * 3, []]
    assert [env.log[-1] for env in environments] == ["close"]


def test_a_crashed_success_is_no_example_and_the_only_success_sees_its_own_end() -> None:
    trajectories, prompter = play([("2", "up up"), ("2", "up stay stay")])
    crashed = replace(trajectories[0], state="error")
    taught = with_feedback([crashed, trajectories[1]], STAIRS, prompter)
    assert texts(taught[0]) == [None, None]
    assert "ended with: on step 1" in str(texts(taught[1])[0])
    alone = with_feedback([trajectories[0]], STAIRS, prompter)
    assert "ended with: on step 2" in str(texts(alone[0])[0])


def test_the_task_is_set_up_once_for_a_group_that_needs_no_ending() -> None:
    trajectories, prompter = play([("2", "up up"), ("2", "stay up up")])
    env = STAIRS()
    with_feedback(trajectories, lambda: env, prompter)
    assert env.log == ["reset 2", "close"]


def test_an_environment_that_plays_the_same_actions_differently_is_named() -> None:
    trajectories, prompter = play([("3", "up stay stay")])
    with pytest.raises(EnvironmentContractError, match="group 3, task 3: the same actions lead to another state"):
        with_feedback(trajectories, lambda: STAIRS(slippery=True), prompter)


@pytest.mark.parametrize("mode", MODES)
def test_no_group_sees_its_own_reference(mode: PromptMode) -> None:
    tasks = ["1", "2", "3", "4", "5"]
    trajectories, prompter = play([(task, "stay stay stay") for task in tasks for _ in range(2)], mode=mode, hint="go")
    seen = set()
    for seed in range(8):
        taught = with_shuffled_references(trajectories, STAIRS, prompter, seed)
        sources = []
        for first, second in zip(taught[::2], taught[1::2], strict=True):
            assert texts(first) == texts(second)
            (text,) = {str(prompt).partition("Reference: go for ")[2][0] for prompt in texts(first)}
            sources.append(text)
        assert sorted(sources) == tasks
        assert all(own != other for own, other in zip(tasks, sources, strict=True))
        again = with_shuffled_references(trajectories, STAIRS, prompter, seed)
        assert [texts(t) for t in taught] == [texts(t) for t in again]
        seen.add(tuple(sources))
    assert len(seen) > 3, "the seed decides"


def test_groups_without_a_reference_stay_without_and_one_group_is_not_enough() -> None:
    trajectories, prompter = play([("1", "stay stay stay"), ("2", "up up"), ("3", "up up up")], hint="go")
    bare = replace(trajectories[1], reference=None)
    taught = with_shuffled_references([trajectories[0], bare, trajectories[2]], STAIRS, prompter, seed=1)
    assert texts(taught[1]) == [None, None]
    assert "go for 3" in str(texts(taught[0])[0])
    assert "go for 1" in str(texts(taught[2])[0])
    for alone in ([trajectories[0]], [trajectories[0], trajectories[0], bare], []):
        with pytest.raises(ConfigError, match="at least two tasks"):
            with_shuffled_references(alone, STAIRS, prompter, seed=0)
    np.testing.assert_array_equal(taught[0].turns[0].prompt_ids, trajectories[0].turns[0].prompt_ids)
