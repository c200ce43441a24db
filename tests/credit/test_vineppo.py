"""VinePPO against its loop reference and its identities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.gae import gae
from agentbench_credit.credit.vineppo import vineppo
from agentbench_credit.errors import ConfigError, CreditInputError
from agentbench_credit.trajectory import State
from references import vine

WORLDS = references.worlds()
GAMMAS = st.sampled_from([0.0, 0.5, 0.95, 1.0])


def valued(values: list[float], rewards: list[list[list[float | None]]]) -> CreditBatch:
    return CreditBatch.from_rewards(rewards, signals={"rollout_values": values})


@given(WORLDS, st.one_of(st.just({}), st.fixed_dictionaries({"gamma": GAMMAS})))
@settings(max_examples=60)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = vineppo(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(vine.vineppo(world, **params)), rtol=0, atol=1e-9)


@given(WORLDS, st.booleans(), GAMMAS)
@settings(max_examples=30)
def test_a_penalty_counts_once_in_the_reward_or_beside_it(world: references.World, inside: bool, gamma: float) -> None:
    credit = vineppo(references.build(world, invalid_action_penalty=-0.25, penalty_in_reward=inside), gamma=gamma)
    expected = references.flat(vine.vineppo(world, gamma=gamma))
    penalties = [-0.25 * bad * r.counts for group in world for r in group for bad in r.invalid]
    np.testing.assert_allclose(credit.values, np.add(expected, penalties), rtol=0, atol=1e-9)


@given(WORLDS)
@settings(max_examples=30)
def test_the_turns_of_a_rollout_add_up_to_its_return_minus_the_first_value(world: references.World) -> None:
    batch = references.build(world)
    sums = np.bincount(batch.trajectory_of_turn, vineppo(batch).values, batch.n_trajectories)
    filled = batch.included
    firsts = batch.signals["rollout_values"][batch.turn_offsets[:-1][filled]]
    np.testing.assert_allclose(sums[filled], batch.returns[filled] - firsts, rtol=0, atol=1e-9)
    assert not sums[~filled].any()


@given(WORLDS, GAMMAS)
@settings(max_examples=20)
def test_it_is_gae_without_lambda_on_other_values(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    learned = replace(batch, signals={"values": batch.signals["rollout_values"]})
    expected = gae(learned, gamma=gamma, gae_lambda=0.0, norm="none").values
    np.testing.assert_allclose(vineppo(batch, gamma=gamma).values, expected, rtol=0, atol=1e-12)


@given(WORLDS, GAMMAS)
@settings(max_examples=20)
def test_values_that_foresee_everything_leave_exactly_nothing(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    credit = vineppo(replace(batch, signals={"rollout_values": batch.discounted_returns(gamma)}), gamma=gamma)
    assert not credit.values.any()
    assert credit.diagnostics["groups_without_credit"] == batch.n_groups


def test_rounding_is_no_credit_but_small_advantages_are() -> None:
    values = [0.1 + 0.2, 0.2]
    assert 0.1 + values[1] - values[0] == 0.0 != 0.3 - values[0], "the second is where rounding shows"
    assert vineppo(valued([0.1 + 0.2], [[[0.3]]])).values.tolist() == [0.0]
    assert vineppo(valued([1.0], [[[1.0 + 1e-9]]])).values == pytest.approx([1e-9], rel=1e-5)


def test_worked_numbers() -> None:
    """The second turn decides: before it 1/3 of the fresh rollouts win, after it 8/9; the rollout wins."""
    credit = vineppo(valued([3 / 9, 3 / 9, 8 / 9], [[[0.0, 0.0, 1.0]]]))
    assert credit.values == pytest.approx([0.0, 5 / 9, 1 / 9], abs=1e-12)
    discounted = vineppo(valued([0.25, 0.5], [[[1.0, 2.0]]]), gamma=0.5)
    assert discounted.values.tolist() == [1.0, 1.5]


@pytest.mark.parametrize("ending", ["ended", "truncated"])
def test_no_value_follows_the_last_turn_of_a_rollout_however_it_ended(ending: State) -> None:
    rollouts = [references.Rollout([1.0], [0], [[]], ending, rollout_values=[4.0], final_value=8.0) for _ in range(2)]
    assert vineppo(references.build([rollouts])).values.tolist() == [-3.0, -3.0]


def test_excluded_rollouts_get_nothing_and_are_in_no_diagnostic() -> None:
    credit = vineppo(valued([0.5, 0.0, 100.0, 50.0], [[[0.0, 1.0], [None, 7.0]]]))
    assert credit.values.tolist() == [-0.5, 1.0, 0.0, 0.0]
    expected = {"start_value_mean": 0.5, "advantage_mean": 0.25, "advantage_std": 0.75, "zero_share": 0.0}
    assert credit.diagnostics | expected == credit.diagnostics
    assert vineppo(valued([1.0], [[[1.0]]])).diagnostics["zero_share"] == 1.0


def test_a_group_of_one_has_credit_too() -> None:
    credit = vineppo(valued([0.25], [[[1.0]]]))
    assert credit.values.tolist() == [0.75]
    assert credit.diagnostics["zero_signal_groups"] == 1
    assert credit.diagnostics["groups_without_credit"] == 0


def test_what_is_missing_or_out_of_range_is_refused() -> None:
    with pytest.raises(CreditInputError, match="no signal rollout_values"):
        vineppo(CreditBatch.from_rewards([[[1.0]]]))
    with pytest.raises(ConfigError, match="gamma is 2"):
        vineppo(valued([0.0], [[[1.0]]]), gamma=2.0)
    with pytest.raises(ConfigError, match="truncation"):
        vineppo(valued([0.0], [[[1.0]]]), truncation="bootstrap")


def test_no_rollouts_and_no_turns() -> None:
    assert vineppo(CreditBatch.from_trajectories([], signals={"rollout_values": []})).values.shape == (0,)
    assert vineppo(references.build([[references.Rollout([], [], [])]])).values.shape == (0,)
