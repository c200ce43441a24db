"""CreditBatch: layout, returns, exclusion, and refusal of anything that is not finite or does not fit."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbench_credit.batch import TERMINAL, CreditBatch
from agentbench_credit.errors import ConfigError, CreditInputError
from references import Rollout, World, build, returns_to_go, trajectory, worlds


def token(logp: float = 0.0, **signals: float) -> dict[str, float]:
    return {"logp": logp, "entropy": 0.0, "teacher_logp": 0.0, "kl": 0.0} | signals


def small_world() -> World:
    tokens = [[token(-0.5), token(-1.0)], [], [token(-2.0)]]
    walk = Rollout([0.0, -0.5, 1.0], [7, 7, 8], tokens, invalid=[False, True, False])
    stop = Rollout([None], [7], [[token(-3.0)]], "truncated")
    crash = Rollout([], [], [], "error")
    return [[walk, stop], [crash, walk]]


def test_layout() -> None:
    batch = build(small_world())
    assert batch.group.tolist() == [0, 0, 1, 1]
    assert batch.included.tolist() == [True, False, False, True]
    assert batch.truncated.tolist() == [False, True, False, False]
    assert batch.turn_offsets.tolist() == [0, 3, 4, 4, 7]
    assert batch.token_offsets.tolist() == [0, 2, 2, 3, 4, 6, 6, 7]
    assert batch.state.tolist() == [0, 0, 1, 0, 2, 2, 3]
    assert batch.next_state.tolist() == [0, 1, TERMINAL, TERMINAL, 2, 3, TERMINAL]
    assert batch.reward.tolist() == [0.0, -0.5, 1.0, 0.0, 0.0, -0.5, 1.0]
    assert batch.logp.tolist() == [-0.5, -1.0, -2.0, -3.0, -0.5, -1.0, -2.0]
    assert batch.trajectory_of_turn.tolist() == [0, 0, 0, 1, 3, 3, 3]
    assert batch.turn_of_token.tolist() == [0, 0, 2, 3, 4, 4, 6]
    assert batch.trajectory_of_token.tolist() == [0, 0, 0, 1, 3, 3, 3]
    assert batch.returns.tolist() == [0.5, 0.0, 0.0, 0.5]
    assert batch.absolute_returns.tolist() == [1.5, 0.0, 0.0, 1.5]
    assert batch.labels == ["task0/0", "task0/1", "task1/0", "task1/1"]
    assert (batch.n_trajectories, batch.n_turns, batch.n_tokens, batch.n_groups, batch.n_states) == (4, 7, 7, 2, 4)
    assert [batch.size("trajectory"), batch.size("turn"), batch.size("token")] == [4, 7, 7]


def test_values_are_given_to_tokens() -> None:
    batch = build(small_world())
    assert batch.over_tokens(np.arange(4.0), "trajectory").tolist() == [0, 0, 0, 1, 3, 3, 3]
    assert batch.over_tokens(np.arange(7.0), "turn").tolist() == [0, 0, 2, 3, 4, 4, 6]
    assert batch.over_tokens(np.arange(7.0), "token").tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_labels_count_within_the_group_when_groups_are_mixed() -> None:
    batch = build(small_world(), order=[(0, 0), (1, 0), (0, 1), (1, 1)])
    assert batch.labels == ["task0/0", "task1/0", "task0/1", "task1/1"]
    assert batch.group.tolist() == [0, 1, 0, 1]


@given(worlds(), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
@settings(max_examples=60)
def test_discounted_returns_are_the_double_sum(world: World, gamma: float) -> None:
    expected: list[float] = []
    for rollout in (rollout for group in world for rollout in group):
        if rollout.counts:
            expected += map(float, returns_to_go(rollout.exact_rewards, Fraction(str(gamma))))
        else:
            expected += [0.0] * len(rollout.rewards)
    np.testing.assert_allclose(build(world).discounted_returns(gamma), expected, rtol=0, atol=1e-12)


def test_discounting_an_explicit_case_with_rollouts_without_turns() -> None:
    batch = CreditBatch.from_rewards([[[], [1.0, 2.0, 4.0], []], [[8.0], []]])
    assert batch.discounted_returns(0.5).tolist() == [3.0, 4.0, 4.0, 8.0]
    assert batch.discounted_sums(np.array([1.0, 1.0, 1.0, 1.0]), 2.0).tolist() == [7.0, 3.0, 1.0, 1.0]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_reward_excludes_the_rollout(missing: float | None) -> None:
    batch = CreditBatch.from_rewards([[[1.0, missing], [3.0]]])
    assert batch.included.tolist() == [False, True]
    assert batch.reward.tolist() == [0.0, 0.0, 3.0]
    assert batch.success.tolist() == [False, True]


@given(worlds())
@settings(max_examples=30)
def test_what_is_included(world: World) -> None:
    batch = build(world, invalid_action_penalty=-1.0)
    assert batch.included.tolist() == [rollout.counts for group in world for rollout in group]
    assert not batch.reward[~batch.included[batch.trajectory_of_turn]].any()
    assert not batch.penalty[~batch.included[batch.trajectory_of_turn]].any()


@pytest.mark.parametrize("infinite", [math.inf, -math.inf])
@pytest.mark.parametrize("beside", [0.0, None])
def test_an_infinite_reward_is_refused_by_name_even_beside_a_missing_one(infinite: float, beside: float | None) -> None:
    bad = Rollout([beside, infinite], [0, 0], [[], []])
    with pytest.raises(CreditInputError, match=r"rollout task0/1, turn 1: reward is -?inf"):
        build([[small_world()[0][0], bad]])
    with pytest.raises(CreditInputError, match=r"rollout 0/1, turn 1: reward is -?inf"):
        CreditBatch.from_rewards([[[0.0], [beside, infinite]]])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["logp", "entropy", "teacher_logp", "kl"])
def test_a_token_that_is_not_finite_is_refused_by_name(name: str, value: float) -> None:
    bad = Rollout([0.0, 0.0], [0, 0], [[token()], [token(), token() | {name: value}]])
    with pytest.raises(CreditInputError, match=rf"rollout task1/0, turn 1: .*{name} is -?(nan|inf)"):
        build([[small_world()[0][0]], [bad]])


def test_penalty_inside_the_reward() -> None:
    batch = build(small_world(), invalid_action_penalty=-0.25)
    assert batch.penalty.tolist() == [0.0, -0.25, 0.0, 0.0, 0.0, -0.25, 0.0]
    assert batch.reward.tolist() == [0.0, -0.75, 1.0, 0.0, 0.0, -0.75, 1.0]
    assert batch.penalty_in_reward


def test_penalty_outside_the_reward() -> None:
    batch = build(small_world(), invalid_action_penalty=-0.25, penalty_in_reward=False)
    assert batch.penalty.tolist() == [0.0, -0.25, 0.0, 0.0, 0.0, -0.25, 0.0]
    assert batch.reward.tolist() == [0.0, -0.5, 1.0, 0.0, 0.0, -0.5, 1.0]
    assert not batch.penalty_in_reward


@pytest.mark.parametrize("penalty", [0.1, math.nan, -math.inf])
def test_a_penalty_that_rewards_or_is_not_finite_is_refused(penalty: float) -> None:
    with pytest.raises(ConfigError, match="invalid_action_penalty"):
        build(small_world(), invalid_action_penalty=penalty)


def test_log_probabilities_must_match_the_tokens_of_their_turn() -> None:
    good = trajectory("a", Rollout([0.0, 0.0], [0, 0], [[token()], [token()]]))
    lengths = zip(good.turns, (2, 0), strict=True)
    shifted = tuple(replace(turn, logprobs=np.zeros(length, np.float32)) for turn, length in lengths)
    with pytest.raises(CreditInputError, match="rollout a/0, turn 0: 2 log-probabilities for 1 response token"):
        CreditBatch.from_trajectories([replace(good, turns=shifted)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": np.array([0, 2])}, "group holds integers outside 0 to 1"),
        ({"group": np.array([1, 1])}, "group leaves out integers"),
        ({"group": np.array([0.0, 0.0])}, "group is float64"),
        ({"included": np.array([1, 1])}, "included is int64"),
        ({"included": np.array([True])}, "expected bool"),
        ({"state": np.array([0, -1, 0])}, "state holds integers outside 0 to 2"),
        ({"action": np.array([0, 3, 0])}, "action holds integers outside 0 to 2"),
        ({"turn_offsets": np.array([0, 2, 2])}, "turn_offsets must be int64 and rise from 0 to 3"),
        ({"turn_offsets": np.array([0, 4, 3])}, "turn_offsets must"),
        ({"turn_offsets": np.array([1, 2, 3])}, "turn_offsets must"),
        ({"turn_offsets": np.array([0, 3, 3])}, "included, but without a turn"),
        ({"token_offsets": np.array([0, 2, 1, 3])}, "token_offsets must"),
        ({"logp": np.zeros(2)}, r"logp is float64 \[2\], expected float64 \[3\]"),
        ({"signals": {"kl": np.zeros(4)}}, "signal kl is"),
        ({"signals": {"kl": np.zeros(3, np.float32)}}, "signal kl is float32"),
        ({"penalty": np.array([0.0, math.nan, 0.0])}, "rollout 0/1, turn 0: penalty is nan"),
        ({"progress": 1.5}, "progress is 1.5"),
        ({"progress": math.nan}, "progress is nan"),
        ({"labels": ["a"]}, "1 labels for 2 rollouts"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    batch = CreditBatch.from_rewards([[[1.0], [1.0, 2.0]]])
    with pytest.raises(CreditInputError, match=message):
        replace(batch, **change)


def test_a_state_shared_by_two_groups_is_refused() -> None:
    batch = CreditBatch.from_rewards([[[1.0]], [[1.0]]])
    with pytest.raises(CreditInputError, match="a state occurs in two groups"):
        replace(batch, state=np.array([1, 1]))


def test_states_nested_in_another_way_are_refused() -> None:
    with pytest.raises(CreditInputError, match="not nested alike"):
        CreditBatch.from_rewards([[[1.0], [1.0, 2.0]]], states=[[["a", "b"], ["a"]]])


def test_from_rewards_with_states_and_tokens() -> None:
    batch = CreditBatch.from_rewards(
        [[[0.0, 1.0]], [[-1.0]]], states=[[["s", "t"]], [["s"]]], tokens_per_turn=2, signals={"kl": range(6)}
    )
    assert batch.state.tolist() == [0, 1, 2]
    assert batch.token_offsets.tolist() == [0, 2, 4, 6]
    assert batch.success.tolist() == [True, False]
    assert batch.signals["kl"].tolist() == [0, 1, 2, 3, 4, 5]


def test_rollouts_without_any_turn() -> None:
    batch = CreditBatch.from_rewards([[[], []]])
    assert batch.included.tolist() == [False, False]
    assert batch.next_state.shape == (0,)
    assert batch.returns.tolist() == [0.0, 0.0]


def test_an_empty_batch() -> None:
    batch = CreditBatch.from_trajectories([])
    assert (batch.n_trajectories, batch.n_turns, batch.n_tokens, batch.n_groups) == (0, 0, 0, 0)
    assert batch.discounted_returns(0.9).shape == (0,)
    assert batch.next_state.shape == (0,)
