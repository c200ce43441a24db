"""EMPG against its loop reference and its identities."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

EMPG, GRPO = METHODS.get("empg"), METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "k": st.sampled_from([0.0, 1.0, 5.0]),
        "k_next": st.sampled_from([0.0, 1.0]),
        "zeta": st.sampled_from([0.0, 0.05, 1.0]),
        "ddof": st.sampled_from([0, 1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = EMPG(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(references.empg(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds(), PARAMS)
@settings(max_examples=40)
def test_the_mean_over_turns_that_count_is_zero(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    values = EMPG(batch, **params).values
    spoken = batch.included[batch.trajectory_of_turn] & (batch.token_counts > 0)
    assert not values[~spoken].any()
    assert abs(values.sum()) < 1e-9


def worked_batch() -> CreditBatch:
    """A winner that was sure and then unsure, a loser that was unsure and then sure; one token a turn."""
    return CreditBatch.from_rewards([[[0.0, 1.0], [0.0, 0.0]]], signals={"entropy": [0.1, 0.5, 0.5, 0.1]})


def test_worked_numbers() -> None:
    credit = EMPG(worked_batch(), eps=0.0)
    unit, sure, unsure = 0.5**0.5, 2 / (1 + math.exp(-1)), 2 / (1 + math.e)
    raw = np.array([unit * sure + 0.05 * math.exp(-1), unit * unsure, -unit * unsure + 0.05, -unit * sure])
    assert credit.values == pytest.approx(raw - raw.mean(), abs=1e-12)
    assert (credit.diagnostics["turn_entropy_min"], credit.diagnostics["turn_entropy_max"]) == (0.1, 0.5)


def test_without_slope_and_bonus_it_is_grpo_less_its_mean() -> None:
    batch = worked_batch()
    assert EMPG(batch, k=0.0, zeta=0.0).values == pytest.approx(GRPO(batch).values[[0, 0, 1, 1]], abs=1e-12)


def test_equal_entropies_scale_nothing() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0], [0.0]]], signals={"entropy": [0.3, 0.1 + 0.2, 0.3]})
    assert EMPG(batch, zeta=0.0).values == pytest.approx(GRPO(batch).values, abs=1e-12)


def test_a_smaller_unit_of_entropy_changes_nothing() -> None:
    entropy = worked_batch().signals["entropy"]
    tiny = replace(worked_batch(), signals={"entropy": entropy * 2.0**-60})
    np.testing.assert_array_equal(EMPG(tiny).values, EMPG(worked_batch()).values)
