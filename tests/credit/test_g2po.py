"""G2PO against its loop reference, its identities and worked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS
from agentbench_credit.credit.g2po import g2po
from references.graph_paths import g2po as reference

GRPO = METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "success_value": st.sampled_from([0.0, 1.0, 10.0]),
        "failure_value": st.sampled_from([-1.0, 0.0]),
        "omega": st.sampled_from([0.0, 0.5, 1.0]),
        "truncation": st.sampled_from(["terminal", "bootstrap"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    credit = g2po(batch, **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(reference(world, **params)), rtol=0, atol=1e-9)
    np.testing.assert_allclose(g2po(batch).values, references.flat(reference(world)), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_a_penalty_outside_the_reward_is_added_to_its_turn(world: references.World) -> None:
    apart = g2po(references.build(world, invalid_action_penalty=-0.25, penalty_in_reward=False)).values
    invalid = [bad and r.counts for group in world for r in group for bad in r.invalid]
    wanted = np.array(references.flat(reference(world))) - 0.25 * np.array(invalid)
    np.testing.assert_allclose(apart, wanted, rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_without_weight_it_is_exactly_grpo(world: references.World) -> None:
    batch = references.build(world)
    np.testing.assert_array_equal(g2po(batch, omega=0.0).values, GRPO(batch).values[batch.trajectory_of_turn])


@given(references.worlds())
@settings(max_examples=20)
def test_undiscounted_returns_equal_to_the_ends_value_leave_nothing(world: references.World) -> None:
    """γ = 1 and R = 10 throughout, ends worth 10: every state is worth 10, whatever the rounding of R."""
    for rollout in (rollout for group in world for rollout in group if rollout.counts):
        rollout.rewards = [0.1] * (len(rollout.rewards) - 1) + [10.0 - round(0.1 * (len(rollout.rewards) - 1), 1)]
    credit = g2po(references.build(world), gamma=1.0, failure_value=10.0, eps=0.0)
    assert not credit.values.any()


def worked_batch() -> CreditBatch:
    """The winner goes s, a; the loser s, b."""
    return CreditBatch.from_rewards([[[0.0, 10.0], [0.0, 0.0]]], states=[[["s", "a"], ["s", "b"]]])


def test_values_that_differ_by_rounding_are_equal() -> None:
    """Both ways from s lead to states worth 0, once as 0.1 + 0.2 − 0.3."""
    batch = CreditBatch.from_rewards([[[0.1, 0.2, -0.3], [0.0, 0.0]]], states=[[["s", "a", "b"], ["s", "c"]]])
    assert not g2po(batch, gamma=1.0, success_value=0.0, eps=0.0).values.any()


@pytest.mark.parametrize("won", [False, True])
def test_rounding_is_measured_against_the_ends_too(won: bool) -> None:
    """v differs by a rounding error of its own between the states, and 10 − v by one of 10, which is far larger."""
    returns, states = [0.00012752, 0.0003188, 0.00022316000000000003], [0, 0, 1]
    rollouts = [references.Rollout([r], [s], [[]], success=won) for r, s in zip(returns, states, strict=True)]
    batch = references.build([rollouts])
    credit = g2po(batch, gamma=1.0, success_value=10.0 * won, failure_value=10.0 * (not won), eps=0.0)
    np.testing.assert_array_equal(credit.values, GRPO(batch, eps=0.0).values)


def test_a_smaller_unit_of_reward_changes_no_score() -> None:
    rewards = np.array([[[0.0, 0.1, 1.0], [0.0, 0.3, 0.0]]])
    states = [[["s", "a", "b"], ["s", "c", "b"]]]
    whole, tiny = (CreditBatch.from_rewards((rewards * unit).tolist(), states=states) for unit in (1.0, 2.0**-60))
    expected = g2po(whole, success_value=0.0, eps=0.0).values
    assert expected.any()
    np.testing.assert_array_equal(g2po(tiny, success_value=0.0, eps=0.0).values, expected)


def test_worked_numbers() -> None:
    # γ = 0.5: v(s) = (2.5 + 0)/2 = 1.25, v(a) = 5, v(b) = 0; n ahead = 5, 10, 0, 0; gains 3.75, 5, −1.25, 0
    values = g2po(worked_batch(), gamma=0.5, eps=0.0).values
    unit = 0.5**0.5
    gains = np.array([3.75, 5.0, -1.25, 0.0])
    task = (gains - gains.mean()) / gains.std(ddof=1)
    assert values == pytest.approx(task + np.array([2 * unit, unit, -2 * unit, -unit]), abs=1e-12)


def test_the_last_turn_is_one_turn_from_the_end() -> None:
    """v of the last state is γ R, one step below the success value 10 itself; γ = 0 leaves no value at all."""
    gains = np.array([5.0 - 2.5, 10.0 - 5.0])
    lone = CreditBatch.from_rewards([[[0.0, 10.0]]])
    assert g2po(lone, gamma=0.5, eps=0.0).values == pytest.approx((gains - gains.mean()) / gains.std(ddof=1), abs=1e-12)
    at_zero = g2po(lone, gamma=0.0, eps=0.0, ddof=0).values
    assert at_zero == pytest.approx([-1.0, 1.0], abs=1e-12)


def test_ends_are_worth_constants_and_not_returns() -> None:
    """Returns 1 and 3 at two successes from the same state: both lead to 10, so only A^E tells them apart."""
    batch = CreditBatch.from_rewards([[[1.0], [3.0]]], states=[[["s"], ["s"]]])
    np.testing.assert_array_equal(g2po(batch).values, GRPO(batch).values)


def test_a_self_loop_leads_to_its_own_value() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 10.0]]], states=[[["s", "s"]]])
    # γ = 0.5: v(s) = (2.5 + 5)/2; gains 0 and 6.25; both terms are ±1 with ddof 0
    assert g2po(batch, gamma=0.5, eps=0.0, ddof=0).values == pytest.approx([-2.0, 2.0], abs=1e-12)


def test_a_truncated_rollout_leads_to_failure_or_goes_on() -> None:
    cut = references.Rollout([0.0], [0], [[]], ending="truncated", final_state=1)
    won = references.Rollout([0.0, 10.0], [0, 1], [[], []], success=True)
    batch = references.build([[cut, won]])
    fails, goes_on = (g2po(batch, truncation=how, eps=0.0).values for how in ("terminal", "bootstrap"))
    assert fails[0] < goes_on[0]
    # both turns from state 0 then lead to state 1: their gains are equal, so they differ by A^E alone
    assert goes_on[1] - goes_on[0] == pytest.approx(2 * 0.5**0.5, abs=1e-12)


def test_excluded_rollouts_enter_no_value() -> None:
    rewards: list[list[list[float | None]]] = [[[0.0, 10.0], [0.0, 0.0], [5.0, None]]]
    batch = CreditBatch.from_rewards(rewards, states=[[["s", "a"], ["s", "b"], ["s", "a"]]])
    credit = g2po(batch)
    np.testing.assert_array_equal(credit.values, [*g2po(worked_batch()).values, 0.0, 0.0])
    assert (credit.diagnostics["states"], credit.diagnostics["repeated_states"]) == (3, 1)
