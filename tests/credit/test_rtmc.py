"""RTMC against its loop reference and its identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.rtmc import rtmc
from references import step_methods

PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.99, 1.0]),
        "n0": st.sampled_from([0.0, 0.5, 2.0, 100.0, math.inf]),
        "success_return": st.sampled_from([0.0, 1.0, 10.0]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = rtmc(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(step_methods.rtmc(world, **params)), rtol=0, atol=1e-9)


def choice() -> CreditBatch:
    """In s, two rollouts go left and one of them wins; one goes right and loses."""
    return CreditBatch.from_rewards(
        [[[1.0], [0.0], [0.0]]], states=[[["s"], ["s"], ["s"]]], actions=[[["left"], ["left"], ["right"]]]
    )


def test_worked_numbers() -> None:
    """Q is 1/2 and 0, V and the success rate 1/3, so that shrinking changes nothing."""
    assert rtmc(choice()).values == pytest.approx([1 / 6, 1 / 6, -1 / 3], abs=1e-12)
    # with successes worth 10 the baseline is (3 · 1/3 + 2 · 10/3) / 5 = 23/15
    assert rtmc(choice(), success_return=10.0).values == pytest.approx([-31 / 30, -31 / 30, -23 / 15], abs=1e-12)


def test_states_of_one_action_are_centred_without_a_prior() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], states=[[["s"], ["s"]]])
    assert rtmc(batch, n0=0.0).values.tolist() == [0.0, 0.0]


def test_a_group_of_one_is_zero_whatever_it_visits() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 10.0], [None]]], states=[[["s", "s"], ["s"]]])
    assert rtmc(batch).values.tolist() == [0.0, 0.0, 0.0]


def test_failures_alone_give_exactly_zero_and_successes_alone_reward_speed() -> None:
    assert not rtmc(CreditBatch.from_rewards([[[0.0, 0.0], [0.0]]])).values.any()
    values = rtmc(CreditBatch.from_rewards([[[0.0, 1.0], [1.0]]])).values
    # a state of its own each: (G − 1) · 2 / 3 with G = 0.99, 1 and 1
    assert values == pytest.approx([-0.02 / 3, 0.0, 0.0], abs=1e-12)


def test_excluded_rollouts_do_not_count_in_the_success_rate() -> None:
    winner, loser = references.Rollout([1.0], [0], [[]], success=True), references.Rollout([0.0], [0], [[]])
    crashed = references.Rollout([1.0], [0], [[]], success=True, ending="error")
    values = rtmc(references.build([[winner, loser, crashed]]), n0=math.inf)
    assert values.values.tolist() == [0.0, 0.0, 0.0]  # Q of the one action is 1/2, as is the rate
    assert values.diagnostics["success_rate"] == 0.5
    assert values.diagnostics["return_mean"] == 0.5


def test_returns_that_differ_by_rounding_are_equal() -> None:
    """Both actions in s return 0, one as 0.1 + 0.2 − 0.3."""
    rewards, actions = [[[0.1, 0.2, -0.3], [0.0]]], [[["left", "on", "on"], ["right"]]]
    batch = CreditBatch.from_rewards(rewards, states=[[["s", "a", "b"], ["s"]]], actions=actions)
    assert batch.discounted_returns(1.0)[0] != 0.0
    assert not rtmc(batch, gamma=1.0, n0=0.0).values.any()


def test_a_smaller_unit_of_reward_is_one_of_credit() -> None:
    unit = 2.0**-60
    rewards, actions = [[[unit], [0.0], [0.0]]], [[["left"], ["left"], ["right"]]]
    tiny = CreditBatch.from_rewards(rewards, states=[[["s"], ["s"], ["s"]]], actions=actions)
    np.testing.assert_array_equal(rtmc(tiny, success_return=unit).values, unit * rtmc(choice()).values)
