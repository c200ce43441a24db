"""GRPO against its loop reference and its facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

GRPO = METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = GRPO(references.build(world), **params)
    assert credit.level == "trajectory"
    np.testing.assert_allclose(credit.values, references.flat(references.grpo(world, **params)), rtol=0, atol=1e-9)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9).filter(lambda returns: len(set(returns)) > 1))
def test_without_eps_a_group_has_mean_0_and_deviation_1(returns: list[int]) -> None:
    values = GRPO(CreditBatch.from_rewards([[[float(r)] for r in returns]]), eps=0.0).values
    assert values.mean() == pytest.approx(0.0, abs=1e-12)
    assert values.std(ddof=1) == pytest.approx(1.0, abs=1e-12)


def test_truncation_is_the_end() -> None:
    """A truncated rollout's return is what it got: its terminal value is 0."""
    cut = references.Rollout([1.0, 0.0], [0, 1], [[], []], "truncated")
    done = references.Rollout([0.0], [0], [[]])
    assert GRPO(references.build([[cut, done]]), eps=0.0).values == pytest.approx([0.5**0.5, -(0.5**0.5)])
