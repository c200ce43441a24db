"""CREST against its loop reference and its identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

CREST, GRPO = METHODS.get("crest"), METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "epsilon": st.sampled_from([0.0, 0.28, 0.9]),
        "strength": st.sampled_from([0.0, 0.3, 1.0]),
        "surprise": st.sampled_from([0.0, 0.5, 1.0]),
        "ddof": st.sampled_from([0, 1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = CREST(references.build(world), **params)
    assert credit.level == "token"
    np.testing.assert_allclose(credit.values, references.flat(references.crest(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds(), PARAMS)
@settings(max_examples=40)
def test_credit_only_grows_and_by_no_more_than_its_bounds(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    base = GRPO(batch, ddof=params["ddof"], baseline_over=params["baseline_over"]).per_token(batch)
    values = CREST(batch, **params).values
    assert (np.abs(values) >= np.abs(base) - 1e-12).all()
    assert (np.abs(values) <= np.abs(base) * (1 + params["strength"] * params["epsilon"]) + 1e-12).all()
    assert (values * base >= 0).all()


@given(references.worlds())
@settings(max_examples=30)
def test_a_teacher_that_agrees_gives_exactly_grpo(world: references.World) -> None:
    for token in (token for group in world for rollout in group for turn in rollout.tokens for token in turn):
        token["teacher_logp"] = token["logp"]
    batch = references.build(world)
    np.testing.assert_array_equal(CREST(batch).values, GRPO(batch).per_token(batch))


def test_worked_numbers() -> None:
    """A winner of two tokens: the teacher likes both better; the first surprised the student, the second did not."""
    signals = {"teacher_logp": [-0.6, -0.1, 0.0, 0.0]}
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], tokens_per_turn=2, logp=[-1.0, -0.3, 0.0, 0.0], signals=signals)
    credit = CREST(batch, eps=0.0)
    z = 0.5**0.5
    calm = 0.3 * (1 + 0.5 * (2 / (1 + math.exp(z)) - 1))
    praised = [1 + 0.3 * (math.exp(0.2) - 1), 1 + calm * (math.exp(0.1) - 1)]
    assert credit.values == pytest.approx([z * w for w in praised] + [-z, -z], abs=1e-12)
    assert credit.diagnostics["agreeing_token_share"] == 0.5
