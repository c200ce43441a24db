"""RLOO against its loop reference and its facts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

RLOO = METHODS.get("rloo")


@given(references.worlds(), st.sampled_from(["trajectory", "step"]))
@settings(max_examples=100)
def test_reference(world: references.World, baseline_over: str) -> None:
    credit = RLOO(references.build(world), baseline_over=baseline_over)
    assert credit.level == "trajectory"
    expected = references.flat(references.rloo(world, baseline_over))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


def test_the_own_reward_is_not_in_the_baseline() -> None:
    """Raising one return by x raises its own advantage by exactly x."""
    before = RLOO(CreditBatch.from_rewards([[[1.0], [2.0], [4.0]]])).values
    after = RLOO(CreditBatch.from_rewards([[[1.0], [2.0], [9.0]]])).values
    assert after[2] - before[2] == pytest.approx(5.0, abs=1e-12)


def test_equal_weights_sum_to_zero() -> None:
    values = RLOO(CreditBatch.from_rewards([[[1.0], [2.0], [4.0], [None]]])).values
    assert values.sum() == pytest.approx(0.0, abs=1e-12)
    assert values[3] == 0.0
