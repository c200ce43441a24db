"""The 80/20 rule against its loop reference and its identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

HIGH_ENTROPY, GRPO = METHODS.get("high_entropy"), METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "entropy_quantile": st.sampled_from([0.0, 0.29, 0.8, 1.0]),
        "ddof": st.sampled_from([0, 1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = HIGH_ENTROPY(references.build(world), **params)
    assert credit.level == "token"
    expected = references.flat(references.high_entropy(world, **params))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=30)
def test_a_quantile_of_zero_is_exactly_grpo(world: references.World) -> None:
    batch = references.build(world)
    np.testing.assert_array_equal(HIGH_ENTROPY(batch, entropy_quantile=0.0).values, GRPO(batch).per_token(batch))


def test_a_fifth_is_kept_ties_included_and_excluded_rollouts_do_not_count() -> None:
    entropy = [*range(10), 9.0, *[0.0] * 9, *[100.0] * 10]
    batch = CreditBatch.from_rewards([[[1.0], [0.0], [None]]], tokens_per_turn=10, signals={"entropy": entropy})
    credit = HIGH_ENTROPY(batch, eps=0.0)
    # the 0.8-quantile of 0 … 9, 9 and nine zeros lies at position 15.2 of the sorted 20: 6.2
    assert credit.diagnostics["entropy_threshold"] == pytest.approx(6.2)
    assert np.flatnonzero(credit.values).tolist() == [7, 8, 9, 10]
    assert credit.diagnostics["kept_token_share"] == 0.2
    assert credit.values[[7, 10]] == pytest.approx([0.5**0.5, -(0.5**0.5)])


def test_no_tokens_at_all() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], tokens_per_turn=0, signals={"entropy": []})
    assert HIGH_ENTROPY(batch).diagnostics["kept_token_share"] == 0.0
