"""GiGPO against its loop reference and its identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

GIGPO, GRPO = METHODS.get("gigpo"), METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "omega": st.sampled_from([0.0, 0.5, 1.0]),
        "norm": st.sampled_from(["std", "none"]),
        "episode_norm": st.sampled_from(["std", "none"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=150)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = GIGPO(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(references.gigpo(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=40)
def test_no_repeated_state_is_exactly_grpo(world: references.World) -> None:
    number = iter(range(10**6))
    for rollout in (rollout for group in world for rollout in group):
        rollout.states = [next(number) for _ in rollout.states]
    batch = references.build(world)
    credit = GIGPO(batch)
    np.testing.assert_array_equal(credit.values, GRPO(batch).values[batch.trajectory_of_turn])
    assert credit.diagnostics["repeated_states"] == 0


@given(references.worlds())
@settings(max_examples=20)
def test_without_weight_the_step_term_is_gone(world: references.World) -> None:
    batch = references.build(world)
    np.testing.assert_array_equal(GIGPO(batch, omega=0.0).values, GRPO(batch).values[batch.trajectory_of_turn])


def test_worked_numbers() -> None:
    """Two rollouts share their first state; the winner also passes through it twice."""
    batch = CreditBatch.from_rewards([[[0.0, 0.0, 1.0], [0.0, 0.0]]], states=[[["s", "s", "a"], ["s", "b"]]])
    values = GIGPO(batch, gamma=0.5, norm="none", eps=0.0).values
    episode = 0.5**0.5
    # returns-to-go at s: 0.25, 0.5 and 0, mean 0.25; a and b are visited once
    assert values == pytest.approx([episode, episode + 0.25, episode, -episode - 0.25, -episode], abs=1e-12)


def test_diagnostics_count_states_of_included_rollouts_by_task() -> None:
    rewards: list[list[list[float | None]]] = [[[0.0, 1.0], [0.0], [None]], [[0.0], [1.0]]]
    states = [[["s", "t"], ["s"], ["t"]], [["s"], ["s"]]]
    found = GIGPO(CreditBatch.from_rewards(rewards, states=states)).diagnostics
    assert (found["states"], found["repeated_states"], found["singleton_share"]) == (3, 2, pytest.approx(1 / 3))


def test_a_lone_rollout_is_compared_with_itself_where_it_repeats_a_state() -> None:
    """Returns-to-go at s are 0.25, 0.5 and 1, at t 0; the second group's lone rollout repeats nothing."""
    rewards: list[list[list[float | None]]] = [[[0.0, 0.0, 1.0, 0.0], [None]], [[0.0, 1.0]], [[1.0], [0.0]]]
    states = [[["s", "s", "s", "t"], ["s"]], [["s", "t"]], [["s"], ["s"]]]
    credit = GIGPO(CreditBatch.from_rewards(rewards, states=states), gamma=0.5, norm="none")
    third = 1.75 / 3
    assert credit.values[:7] == pytest.approx([0.25 - third, 0.5 - third, 1.0 - third, 0, 0, 0, 0], abs=1e-12)
    assert credit.diagnostics["lone_rollouts_with_credit"] == 1
    group = [
        references.Rollout([0.0, 0.0, 1.0, 0.0], [0, 0, 0, 1], [[]] * 4),
        references.Rollout([None], [0], [[]]),
    ]
    expected = references.flat(references.gigpo([group], gamma=0.5, norm="none"))
    assert credit.values[:5] == pytest.approx(expected, abs=1e-12)


def test_a_lone_rollout_with_equal_returns_to_go_is_zero() -> None:
    credit = GIGPO(CreditBatch.from_rewards([[[0.0, 0.0]]], states=[[["s", "s"]]]))
    assert credit.values.tolist() == [0.0, 0.0]
    assert credit.diagnostics["lone_rollouts_with_credit"] == 0
