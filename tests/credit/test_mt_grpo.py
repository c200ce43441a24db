"""MT-GRPO against its loop reference and its identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

MT_GRPO, GRPO = METHODS.get("mt_grpo"), METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "c": st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        "ddof": st.sampled_from([0, 1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = MT_GRPO(references.build(world), **params)
    assert credit.level == "turn"
    expected = references.flat(references.mt_grpo(world, **params))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=30)
def test_single_turns_are_grpo(world: references.World) -> None:
    single = [[rollout for rollout in group if len(rollout.rewards) == 1] for group in world]
    batch = references.build([group for group in single if group])
    np.testing.assert_array_equal(MT_GRPO(batch).values, GRPO(batch).values[batch.trajectory_of_turn])


def test_worked_numbers() -> None:
    """The call succeeds in the first and second rollout, the answer in the first and third."""
    batch = CreditBatch.from_rewards([[[0.5, 0.0, 1.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    credit = MT_GRPO(batch, eps=0.0)
    unit = 0.75**0.5  # of two ones and two zeros
    expected = [2 * unit, unit, unit, 0.0, -unit, 0.0, unit, -2 * unit, -unit]
    assert credit.values == pytest.approx(expected, abs=1e-12)
    assert MT_GRPO(batch, c=0.0, eps=0.0).values[:3] == pytest.approx([unit] * 3, abs=1e-12)
    assert credit.diagnostics["single_turn_rollouts"] == 0
    assert credit.diagnostics["groups_without_turn_signal"] == 0


def test_turn_rewards_that_differ_by_rounding_are_equal() -> None:
    """The rewards before the outcome sum to 0 in both, once as 0.1 + 0.2 − 0.3."""
    credit = MT_GRPO(CreditBatch.from_rewards([[[0.1, 0.2, -0.3, 1.0], [0.0, 1.0]]]), eps=0.0)
    assert not credit.values.any()
    assert credit.diagnostics["groups_without_turn_signal"] == 1


def test_a_smaller_unit_of_reward_changes_no_score() -> None:
    rewards = np.array([[[0.5, 0.0, 1.0], [0.25, 0.0, 0.0]]])
    whole, tiny = (CreditBatch.from_rewards((rewards * unit).tolist()) for unit in (1.0, 2.0**-60))
    np.testing.assert_array_equal(MT_GRPO(tiny, eps=0.0).values, MT_GRPO(whole, eps=0.0).values)
