"""GAGPO against its loop reference and its identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.credit.gagpo import gagpo
from agentbench_credit.credit.grpo import grpo
from references import graph_values

GAMMAS = st.sampled_from([0.0, 0.5, 0.95, 1.0])
PARAMS = st.fixed_dictionaries(
    {
        "gamma": GAMMAS,
        "gae_lambda": st.sampled_from([0.0, 0.8, 1.0]),
        "norm": st.sampled_from(["group", "batch", "none"]),
        "episode_weight": st.sampled_from([0.0, 0.5]),
        "truncation": st.sampled_from(["terminal", "bootstrap"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = gagpo(references.build(world), **params)
    assert (credit.level, credit.ratio) == ("turn", "turn")
    expected = references.flat(graph_values.gagpo(world, **params))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


def test_ratio_is_passed_on() -> None:
    assert gagpo(CreditBatch.from_rewards([[[1.0], [0.0]]]), ratio="token").ratio == "token"


@given(references.worlds())
@settings(max_examples=20)
def test_a_penalty_in_the_reward_is_a_reward(world: references.World) -> None:
    values = gagpo(references.build(world, invalid_action_penalty=-0.5)).values
    for rollout in (rollout for group in world for rollout in group):
        for t, (reward, bad) in enumerate(zip(rollout.rewards, rollout.invalid, strict=True)):
            if reward is not None and bad:
                rollout.rewards[t] = round(reward - 0.5, 6)
    np.testing.assert_allclose(values, references.flat(graph_values.gagpo(world)), rtol=0, atol=1e-9)


def mean_returns(batch: CreditBatch, gamma: float) -> Floats:
    """V of each turn's state, from the included rollouts."""
    kept = batch.included[batch.trajectory_of_turn]
    visits = np.bincount(batch.state[kept], minlength=batch.n_states)
    sums = np.bincount(batch.state[kept], batch.discounted_returns(gamma)[kept], batch.n_states)
    return np.where(kept, (sums / np.maximum(visits, 1))[batch.state], 0.0)


@given(references.worlds(), GAMMAS)
@settings(max_examples=20)
def test_lambda_one_is_the_return_minus_the_value(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    values = gagpo(batch, gamma=gamma, gae_lambda=1.0, norm="none").values
    np.testing.assert_allclose(values, batch.discounted_returns(gamma) - mean_returns(batch, gamma), atol=1e-9)


@given(references.worlds(), GAMMAS)
@settings(max_examples=20)
def test_lambda_zero_is_the_one_step_difference(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    value = mean_returns(batch, gamma)
    following = np.append(value, 0.0)[1:]
    following[batch.last_turns] = 0.0
    values = gagpo(batch, gamma=gamma, gae_lambda=0.0, norm="none").values
    np.testing.assert_allclose(values, batch.reward + gamma * following - value, atol=1e-9)


@given(references.worlds(), PARAMS)
@settings(max_examples=20)
def test_a_tail_of_states_visited_once_is_exactly_zero(world: references.World, params: dict[str, Any]) -> None:
    number = iter(range(100, 10**6))
    tails = []
    for rollout in (rollout for group in world for rollout in group):
        shared = len(rollout.states) // 2
        rollout.states[shared:] = [next(number) for _ in rollout.states[shared:]]
        tails += [False] * shared + [True] * (len(rollout.states) - shared)
    params |= {"norm": "none", "episode_weight": 0.0, "truncation": "terminal"}
    assert not gagpo(references.build(world), **params).values[tails].any()


@given(references.worlds(), PARAMS)
@settings(max_examples=20)
def test_without_rewards_everything_is_zero(world: references.World, params: dict[str, Any]) -> None:
    for rollout in (rollout for group in world for rollout in group):
        rollout.rewards = [0.0] * len(rollout.rewards)
    assert not gagpo(references.build(world), **params).values.any()


def test_equal_visits_give_no_signal_however_they_round() -> None:
    """Both visits to s return 0.3, once in three steps; in the second group 0, once as 0.1 + 0.2 − 0.3."""
    rewards = [[[0.1, 0.1, 0.1], [0.3]], [[0.1, 0.2, -0.3], [0.0]]]
    batch = CreditBatch.from_rewards(rewards, states=[[["s", "a", "b"], ["s"]], [["s", "a", "b"], ["s"]]])
    assert batch.discounted_returns(1.0)[4] != 0.0
    assert not gagpo(batch, gamma=1.0, eps=0.0).values.any()
    assert not gagpo(batch, gamma=1.0, norm="none").values.any()


def test_differences_that_cancel_but_for_rounding_give_no_signal() -> None:
    """From s one rollout is cut in f, worth 0.3, and one in g, worth −0.3: with them each turn is worth V(s) = 0.1."""
    cut = [references.Rollout([-0.2], [0], [[]], "truncated", final_state=1)]
    cut += [references.Rollout([0.4], [0], [[]], "truncated", final_state=2)]
    ended = [references.Rollout([0.3], [1], [[]]), references.Rollout([-0.3], [2], [[]])]
    options: dict[str, Any] = {"gamma": 1.0, "truncation": "bootstrap", "eps": 0.0}
    batch = references.build([cut + ended])
    raw = gagpo(batch, norm="none", **options).values
    assert 0.0 < np.abs(raw).max() < 1e-15
    assert not gagpo(batch, **options).values.any()


def test_a_smaller_unit_of_reward_changes_no_score() -> None:
    rewards = np.array([[[0.0, 0.1, 1.0], [0.0, 0.3, 0.0]]])
    states = [[["s", "s", "a"], ["s", "b", "a"]]]
    whole, tiny = (CreditBatch.from_rewards((rewards * unit).tolist(), states=states) for unit in (1.0, 2.0**-60))
    expected = gagpo(whole, eps=0.0).values
    assert expected.any()
    np.testing.assert_array_equal(gagpo(tiny, eps=0.0).values, expected)


def test_a_truncated_rollout_takes_the_value_of_its_last_state() -> None:
    ended = references.Rollout([4.0], [1], [[]])
    cut = references.Rollout([0.0], [0], [[]], ending="truncated", final_state=1)
    batch = references.build([[ended, cut]])
    assert gagpo(batch, gamma=0.5, norm="none", truncation="bootstrap").values.tolist() == [0.0, 2.0]
    assert gagpo(batch, gamma=0.5, norm="none").values.tolist() == [0.0, 0.0]


def test_worked_numbers() -> None:
    """s is shared: G is 0.25, 0.5 and 0 there, V(s) = 0.25."""
    batch = CreditBatch.from_rewards([[[0.0, 0.0, 1.0], [0.0, 0.0]]], states=[[["s", "s", "a"], ["s", "b"]]])
    # δ: 0.5 · 0.25 − 0.25, 0.5 · 1 − 0.25, 0; −0.25, 0
    credit = gagpo(batch, gamma=0.5, gae_lambda=0.5, norm="none")
    assert credit.values.tolist() == [-0.125 + 0.25 * 0.25, 0.25, 0.0, -0.25, 0.0]
    assert credit.diagnostics["singleton_share"] == pytest.approx(2 / 3)
    assert (credit.diagnostics["states"], credit.diagnostics["repeated_states"]) == (3, 1)
    raw = np.array([-0.0625, 0.25, 0.0, -0.25, 0.0])
    scores = gagpo(batch, gamma=0.5, gae_lambda=0.5, eps=0.0).values
    np.testing.assert_allclose(scores, (raw - raw.mean()) / raw.std(ddof=1), atol=1e-12)
    added = gagpo(batch, gamma=0.5, gae_lambda=0.5, eps=0.0, episode_weight=2.0).values
    np.testing.assert_allclose(added - scores, 2 * grpo(batch, eps=0.0).values[batch.trajectory_of_turn], atol=1e-12)
