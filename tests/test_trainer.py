"""What all trainers share: which rollouts an update does, and the ranges of their settings."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from agentbench_credit.env import Panel, Task
from agentbench_credit.errors import ConfigError
from agentbench_credit.trainer import TRAINERS, Objective, Optimisation, TaskSchedule, outcome_rewards
from agentbench_credit.trajectory import Trajectory, Turn


def panel_of(size: int) -> Panel:
    return Panel("p", "train", 1, tuple(Task(f"t{i}", "") for i in range(size)))


def schedule_of(size: int = 10, tasks: int = 3, group: int = 2, seed: int = 0, updates: int = 99) -> TaskSchedule:
    return TaskSchedule(panel_of(size), updates=updates, tasks_per_update=tasks, group_size=group, seed=seed)


def test_every_epoch_goes_through_the_panel_in_a_new_order() -> None:
    schedule = schedule_of()
    epochs = [[s.task_id for u in range(3 * e + 1, 3 * e + 4) for s in schedule.starts(u)[::2]] for e in range(30)]
    assert all(len(set(epoch)) == 9 for epoch in epochs), "a task came twice in an epoch"
    assert len({tuple(epoch) for epoch in epochs}) == 30
    # The one task that is left over is another one each time.
    counts = Counter(task for epoch in epochs for task in epoch)
    assert len(counts) == 10
    assert min(counts.values()) > 20


def test_groups_are_complete_and_no_seed_comes_twice() -> None:
    schedule = schedule_of()
    starts = [start for update in range(1, 40) for start in schedule.starts(update)]
    groups = Counter(start.group_id for start in starts)
    assert set(groups.values()) == {2}
    assert len({start.seed for start in starts}) == len(starts)
    assert all(start.group_id.split(":")[1] == start.task_id for start in starts)


def test_rollouts_follow_from_seed_and_update_alone() -> None:
    forward = [schedule_of().starts(update) for update in range(1, 9)]
    fresh = [schedule_of().starts(update) for update in range(8, 0, -1)][::-1]
    assert forward == fresh
    assert schedule_of(seed=1).starts(1) != forward[0]


def test_a_panel_that_fits_exactly_has_no_edge() -> None:
    schedule = schedule_of(size=4, tasks=4)
    for update in range(1, 6):
        assert sorted(start.task_id for start in schedule.starts(update)[::2]) == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize("wrong", [{"updates": 0}, {"tasks": 0}, {"tasks": 11}, {"group": 0}, {"seed": -1}])
def test_a_schedule_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="use 1 to 10 tasks"):
        schedule_of(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"clip_low": 1.0}, {"clip_low": -0.1}, {"clip_high": -0.1}, {"dual_clip": 1.0}, {"kl_coefficient": float("nan")}],
)
def test_objectives_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="objective out of range"):
        Objective(**wrong)
    assert Objective(dual_clip=None, clip_low=0.0).dual_clip is None


@pytest.mark.parametrize(
    "wrong", [{"lr": 0.0}, {"epochs": 0}, {"minibatches": 0}, {"batch_tokens": 0}, {"max_grad_norm": float("nan")}]
)
def test_optimisations_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="optimisation out of range"):
        Optimisation(**({"lr": 1e-4} | wrong))


def test_the_local_trainer_is_registered() -> None:
    assert "local" in TRAINERS.names()
    assert TRAINERS.get("local").name == "local"


def test_outcome_rewards_replace_the_environment_s_and_leave_missing_ones_missing() -> None:
    won, lost = rollout_with([0.5, 0.5, -0.1], success=True), rollout_with([0.9, 0.9], success=False)
    missing, empty = rollout_with([1.0, None], success=True), rollout_with([], success=False)
    changed = outcome_rewards([won, lost, missing, empty], 10.0)
    assert [[turn.reward for turn in t.turns] for t in changed] == [[0.0, 0.0, 10.0], [0.0, 0.0], [0.0, None], []]
    odd = outcome_rewards([rollout_with([1.0, math.nan, math.inf], success=True)], 10.0)[0]
    assert [str(turn.reward) for turn in odd.turns] == ["0.0", "nan", "inf"], "the batch excludes or refuses them"
    assert [turn.reward for turn in won.turns] == [0.5, 0.5, -0.1], "the rollouts themselves are as they were"
    assert [turn.state_key for turn in changed[0].turns] == [turn.state_key for turn in won.turns]


def rollout_with(rewards: list[float | None], *, success: bool) -> Trajectory:
    ids = np.arange(2, dtype=np.int32)
    turns = tuple(
        Turn("o", bytes([t]), None, ids, ids, np.zeros(2, np.float32), "stop", "a", "a", True, reward)
        for t, reward in enumerate(rewards)
    )
    return Trajectory("e", {}, "t", "t", 0, "p", {}, turns, b"", "ended", success)
