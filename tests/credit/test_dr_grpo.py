"""Dr. GRPO against its loop reference and its facts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.dr_grpo import dr_grpo
from references import step_methods


@given(references.worlds(), st.sampled_from(["trajectory", "step"]))
@settings(max_examples=40)
def test_reference(world: references.World, baseline_over: str) -> None:
    credit = dr_grpo(references.build(world), baseline_over=baseline_over)
    assert credit.level == "trajectory"
    expected = references.flat(step_methods.dr_grpo(world, baseline_over))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


def test_a_missing_reward_leaves_its_siblings_alone() -> None:
    assert dr_grpo(CreditBatch.from_rewards([[[1.0], [None], [0.0]]])).values.tolist() == [0.5, 0.0, -0.5]


def test_long_rollouts_do_not_weigh_more_unless_asked() -> None:
    batch = CreditBatch.from_rewards([[[5.0, 5.0], [0.0] * 8]])
    assert dr_grpo(batch).values.tolist() == [5.0, -5.0]
    assert dr_grpo(batch, baseline_over="step").values.tolist() == [8.0, -2.0]


def test_the_rewards_scale_remains() -> None:
    small, large = (dr_grpo(CreditBatch.from_rewards([[[x], [0.0], [0.0]]])).values for x in (1.0, 10.0))
    assert large == pytest.approx(10.0 * small, abs=1e-12)
    assert small == pytest.approx([2 / 3, -1 / 3, -1 / 3], abs=1e-12)


def test_a_penalty_kept_out_of_the_reward_stays_on_its_turn() -> None:
    winner = references.Rollout([1.0, 1.0], [0, 1], [[], []], invalid=[False, True])
    loser = references.Rollout([0.0], [0], [[]])
    batch = references.build([[winner, loser]], invalid_action_penalty=-0.5, penalty_in_reward=False)
    assert dr_grpo(batch).values.tolist() == [1.0, 0.5, -1.0]
    batch = references.build([[winner, loser]], invalid_action_penalty=-0.5)
    assert dr_grpo(batch).values.tolist() == [0.75, -0.75]
