"""Rollouts: groups start alike, finished episodes leave, errors and over-long prompts end one rollout only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.policy.base import Answer, Request, Sampling
from agentbench_credit.policy.prompts import Prompter, PromptMode
from agentbench_credit.policy.scripted import ScriptedPolicy, ScriptedStream
from agentbench_credit.rollout import Start, Timing, play, rollout
from agentbench_credit.trajectory import Trajectory
from models import small_tokenizer

TOKENIZER = small_tokenizer()


@dataclass
class CountDown:
    """An environment whose task "n" ends after n turns of "down"; "x" is refused, "die" raises."""

    closed: list[CountDown]
    drifting: bool = False
    spec: Any = field(default_factory=lambda: SimpleNamespace(id="test/CountDown-v0", kwargs={"preset": "p"}))
    left: int = 0
    resets: int = 0

    def _info(self, valid: bool = True) -> dict[str, Any]:
        key = f"{self.left}{self.resets if self.drifting else ''}".encode()
        return {
            "state_key": key,
            "admissible_actions": ("down",),
            "action_valid": valid,
            "task_id": "",
            "instruction": "Count.",
            "success": self.left == 0,
            "turn": 0,
        }

    def reset(self, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert options is not None
        self.resets += 1
        if options["task"] == "broken":
            raise RuntimeError("no such level")
        self.left = int(options["task"])
        return f"left {self.left}", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "die":
            raise RuntimeError("engine lost")
        valid = action == "down"
        self.left -= valid
        return f"left {self.left}", float(self.left == 0), self.left == 0, False, self._info(valid)

    def snapshot(self) -> object:
        return self.left

    def restore(self, snapshot: object) -> tuple[str, dict[str, Any]]:
        assert isinstance(snapshot, int)
        self.left = snapshot
        return f"left {self.left}", self._info()

    def reference(self) -> str | None:
        return "down " * self.left if self.left else None

    def close(self) -> None:
        self.closed.append(self)


def played(
    tasks: Sequence[str],
    script: Any = lambda _: "down",
    *,
    parallel: int = 3,
    groups: Sequence[str] | None = None,
    **kwargs: Any,
) -> tuple[list[Trajectory], list[CountDown], list[int]]:
    closed: list[CountDown] = []
    sizes: list[int] = []
    policy = ScriptedPolicy(script, TOKENIZER, "scripted")
    open_stream = policy.stream

    def counted(sampling: Sampling) -> ScriptedStream:
        stream = open_stream(sampling)
        collect = stream.collect

        def counted_collect() -> list[Answer]:
            answers = collect()
            sizes.append(len(answers))
            return answers

        stream.collect = counted_collect  # type: ignore[method-assign]
        return stream

    policy.stream = counted  # type: ignore[method-assign]
    drifting = kwargs.pop("drifting", False)
    policy.max_length = kwargs.pop("max_length", policy.max_length)
    starts = [Start(task, (groups or tasks)[i], i) for i, task in enumerate(tasks)]
    prompter = Prompter(TOKENIZER, mode=kwargs.pop("mode", "turn"))
    make: Any = lambda: CountDown(closed, drifting)  # noqa: E731
    result = rollout(policy, make, starts, prompter=prompter, sampling=Sampling(), parallel=parallel, **kwargs)
    return result, closed, sizes


def test_every_start_is_played_in_order_and_finished_episodes_leave_the_batch() -> None:
    trajectories, closed, sizes = played(["3", "1", "2", "1"])
    assert [len(t.turns) for t in trajectories] == [3, 1, 2, 1]
    assert [t.task_id for t in trajectories] == ["3", "1", "2", "1"]
    assert sizes[0] == 3
    assert sum(sizes) == 3 + 1 + 2 + 1, "no finished episode is asked again"
    assert len(closed) == 3
    first = trajectories[0]
    assert first.state == "ended"
    assert first.success
    assert first.reward == 1.0
    assert [turn.state_key for turn in first.turns] == [b"3", b"2", b"1"]
    assert first.final_state_key == b"0"
    assert first.reference == "down down down "
    assert first.env_kwargs == {"preset": "p"}
    assert TOKENIZER.decode(first.turns[1].response_ids) == "down"
    assert "left 2" in TOKENIZER.decode(first.turns[1].prompt_ids)
    assert first.turns[0].teacher_prompt_ids is None


def test_conversations_extend_and_teachers_see_the_plan() -> None:
    trajectories, _, _ = played(["3"], mode="conversation", with_reference=True)
    turns = trajectories[0].turns
    for earlier, later in pairwise(turns):
        past = np.concatenate([earlier.prompt_ids, earlier.response_ids])
        np.testing.assert_array_equal(later.prompt_ids[: len(past)], past)
    shown = [TOKENIZER.decode(turn.teacher_prompt_ids) for turn in turns]
    assert ["Reference: down down<|im_end|>" in text.replace(" <", "<") for text in shown] == [False, True, False]
    assert all(text.count("Reference") == 1 for text in shown)


def test_errors_end_their_own_rollout_and_are_kept() -> None:
    script = lambda request: "die" if request.env.left == 2 else "down"  # noqa: E731
    with pytest.warns(UserWarning, match="failed"):
        trajectories, closed, _ = played(["1", "broken", "3", "1"], script)
    assert [t.state for t in trajectories] == ["ended", "error", "error", "ended"]
    assert [t.success for t in trajectories] == [True, False, False, True]
    assert "no such level" in str(trajectories[1].error)
    assert trajectories[1].turns == ()
    assert "engine lost" in str(trajectories[2].error)
    assert len(trajectories[2].turns) == 1
    assert len({id(env) for env in closed}) == len(closed) == 5, "an instance that failed is closed and replaced"


@pytest.mark.filterwarnings("ignore:rollout of 2 failed")
def test_one_bad_request_fails_alone() -> None:
    def script(request: Request) -> str:
        if request.seed % 2**64 == 1:
            raise ValueError("refused")
        return "down"

    trajectories, _, _ = played(["2", "2", "2"], script)
    assert [t.state for t in trajectories] == ["ended", "error", "ended"]
    assert "refused" in str(trajectories[1].error)


def test_a_prompt_without_room_for_a_response_truncates_that_rollout() -> None:
    trajectories, _, _ = played(["1", "30"], mode="conversation", max_length=400)
    assert [t.state for t in trajectories] == ["ended", "truncated"]
    assert 1 < len(trajectories[1].turns) < 30
    assert not trajectories[1].success


def test_a_group_that_starts_in_two_states_is_refused() -> None:
    with pytest.raises(EnvironmentContractError, match="different states"):
        played(["2", "3"], groups=["g", "g"])
    with pytest.raises(EnvironmentContractError, match="different states"):
        played(["2", "2"], groups=["g", "g"], parallel=1, drifting=True)


def test_invalid_actions_are_recorded_and_turn_seeds_differ() -> None:
    seeds: list[int] = []

    def script(request: Request) -> str:
        seeds.append(request.seed)
        return "x" if len(seeds) == 1 else "down"

    trajectories, _, _ = played(["2"], script)
    assert [turn.action_valid for turn in trajectories[0].turns] == [False, True, True]
    assert len(set(seeds)) == 3


def test_a_slow_environment_holds_up_nobody_else() -> None:
    """While one environment steps, the policy answers others; the order of events is the same each time."""
    events: list[str] = []

    def script(request: Request) -> str:
        events.append(f"{request.seed % 2**64}")
        return "down"

    timing = Timing()
    played(["6", "1", "1", "1"], script, parallel=2, timing=timing)
    again, events = events, []
    played(["6", "1", "1", "1"], script, parallel=2)
    assert events == again
    assert sorted(events) == ["0"] * 6 + ["1", "2", "3"]
    assert events[-1] == "0", "the long episode outlives those that took the other place"
    assert 0 < timing.generate + timing.wait < timing.total
    assert timing.environment > 0
    assert str(timing).startswith("generate ")


def test_finished_rollouts_are_reported_once() -> None:
    seen: list[int] = []
    trajectories, _, _ = played(["2", "1", "1"], parallel=2, on_finished=lambda i, _: seen.append(i))
    assert sorted(seen) == [0, 1, 2]
    assert seen[0] == 1
    assert len(trajectories) == 3


def test_nothing_to_play() -> None:
    assert played([])[0] == []


@pytest.mark.parametrize("mode", ["turn", "conversation"])
def test_a_start_in_the_middle_goes_on_from_there(mode: PromptMode) -> None:
    """It sees the turns before it as its past, holds its own only, and leaves the task's reference to others."""
    (whole,), _, _ = played(["4"], mode=mode)
    policy = ScriptedPolicy(lambda _: "down", TOKENIZER, "scripted")
    starts = [Start("4", "middle", 7, snapshot=4 - t, past=whole.turns[:t]) for t in (0, 2)]
    make: Any = lambda: CountDown([])  # noqa: E731
    with pytest.raises(EnvironmentContractError, match="different states"):
        rollout(policy, make, starts, prompter=Prompter(TOKENIZER, mode), sampling=Sampling())
    starts = [replace(start, group_id=str(start.snapshot)) for start in starts]
    fresh = rollout(policy, make, starts, prompter=Prompter(TOKENIZER, mode), sampling=Sampling())
    assert [[turn.state_key for turn in each.turns] for each in fresh] == [[b"4", b"3", b"2", b"1"], [b"2", b"1"]]
    for each, expected in zip(fresh, (whole.turns, whole.turns[2:]), strict=True):
        for turn, same in zip(each.turns, expected, strict=True):
            np.testing.assert_array_equal(turn.prompt_ids, same.prompt_ids)
        assert each.reference is None
        assert each.success
        assert each.reward == 1.0


def test_rollouts_can_be_taken_one_by_one_as_they_finish() -> None:
    closed: list[CountDown] = []
    policy = ScriptedPolicy(lambda _: "down", TOKENIZER, "scripted")
    starts = [Start(task, task, 0) for task in ("3", "1", "2", "9")]
    make: Any = lambda: CountDown(closed)  # noqa: E731
    finished = play(policy, make, starts, prompter=Prompter(TOKENIZER), sampling=Sampling(), parallel=3)
    assert [next(finished)[0] for _ in range(3)] == [1, 2, 0]
    assert not closed
    finished.close()
    assert len(closed) == 3, "who stops early leaves no environment open"
