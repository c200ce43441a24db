from __future__ import annotations

import dataclasses
import math
import types
import typing

import pytest

from agentbench_credit.trajectory import Trajectory, Turn
from handmade import make_trajectory, make_turn


def test_n_tokens_counts_responses_and_no_prompts() -> None:
    turns = [make_turn([1, 2, 3], [5, 6]), make_turn([1], []), make_turn([1, 2], [7])]
    assert make_trajectory(turns).n_tokens == 3
    assert make_trajectory([]).n_tokens == 0


@pytest.mark.parametrize(
    ("rewards", "total"),
    [([0.5, -1.5, 2.0], 1.0), ([0.0], 0.0), ([1.0, None], None), ([None], None), ([], None)],
)
def test_reward_is_the_sum_unless_one_is_missing(rewards: list[float | None], total: float | None) -> None:
    assert make_trajectory([make_turn([1], [2], reward=reward) for reward in rewards]).reward == total


def test_nan_reward_stays_visible() -> None:
    reward = make_trajectory([make_turn([1], [2], reward=reward) for reward in (math.nan, 1.0)]).reward
    assert reward is not None
    assert math.isnan(reward)


@pytest.mark.parametrize("record", [make_turn([1], [2]), make_trajectory([])])
def test_records_are_frozen_and_compare_by_identity(record: Turn | Trajectory) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, "x")
    assert record != dataclasses.replace(record)


def test_only_fields_that_may_be_missing_default_to_none() -> None:
    for cls in (Turn, Trajectory):
        hints = typing.get_type_hints(cls)
        missing = [field.name for field in dataclasses.fields(cls) if field.default is None]
        assert missing
        assert all(types.NoneType in typing.get_args(hints[name]) for name in missing)
