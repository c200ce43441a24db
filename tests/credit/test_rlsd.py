"""RLSD against its loop reference and its identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

RLSD, GRPO = METHODS.get("rlsd"), METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "mu": st.sampled_from([0.0, 0.5, 1.0]),
        "epsilon": st.sampled_from([0.0, 0.2, 0.9]),
        "ddof": st.sampled_from([0, 1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS, st.sampled_from([0.0, 0.25, 1.0]))
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any], progress: float) -> None:
    credit = RLSD(references.build(world, progress=progress), **params)
    assert credit.level == "token"
    expected = references.flat(references.rlsd(world, progress=progress, **params))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=30)
def test_at_the_end_of_training_or_with_an_agreeing_teacher_it_is_grpo(world: references.World) -> None:
    batch = references.build(world, progress=1.0)
    np.testing.assert_array_equal(RLSD(batch).values, GRPO(batch).per_token(batch))
    for token in (token for group in world for rollout in group for turn in rollout.tokens for token in turn):
        token["teacher_logp"] = token["logp"]
    batch = references.build(world)
    np.testing.assert_array_equal(RLSD(batch).values, GRPO(batch).per_token(batch))


def test_worked_numbers() -> None:
    """A teacher that likes the token strengthens a success and softens the blame for a failure; ε bounds both."""
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], tokens_per_turn=2, signals={"teacher_logp": [0.1, -5.0] * 2})
    credit = RLSD(batch, mu=1.0, eps=0.0)
    unit = 0.5**0.5
    expected = [unit * np.exp(0.1), unit * 0.8, -unit * np.exp(-0.1), -unit * 1.2]
    assert credit.values == pytest.approx(expected, abs=1e-12)
    assert credit.diagnostics["mu"] == 1.0
    assert credit.diagnostics["weight_min"] == pytest.approx(0.8)
    assert credit.diagnostics["weight_max"] == pytest.approx(1.2)
    assert credit.diagnostics["weight_mean"] == pytest.approx(np.mean([np.exp(0.1), 0.8, np.exp(-0.1), 1.2]))


def test_weights_of_excluded_rollouts_are_not_in_the_diagnostics() -> None:
    signals = {"teacher_logp": [0.0, 0.0, -5.0]}
    batch = CreditBatch.from_rewards([[[1.0], [0.0], [None]]], signals=signals)
    assert RLSD(batch).diagnostics["weight_min"] == 1.0
