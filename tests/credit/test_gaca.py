"""GACA against its loop reference and its identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.gaca import gaca
from agentbench_credit.credit.gigpo import gigpo
from references import step_methods

PARAMS = st.fixed_dictionaries(
    {
        "w0": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        "kappa": st.sampled_from([0.0, 0.5, 3.0]),
        "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "norm": st.sampled_from(["std", "none"]),
        "episode_norm": st.sampled_from(["std", "none"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=60)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = gaca(references.build(world), **params)
    assert credit.level == "turn"
    assert credit.diagnostics["reconstruction"] is True
    np.testing.assert_allclose(credit.values, references.flat(step_methods.gaca(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_without_slope_it_is_exactly_gigpo(world: references.World) -> None:
    batch = references.build(world)
    np.testing.assert_array_equal(gaca(batch, kappa=0.0).values, gigpo(batch).values)


def two_rollouts(logp: list[float], **params: Any) -> CreditBatch:
    """The winner passes through s once, the loser ends in it."""
    rewards: list[list[list[float | None]]] = [[[0.0, 1.0], [0.0]]]
    return CreditBatch.from_rewards(rewards, states=[[["s", "t"], ["s"]]], logp=logp, **params)


def test_worked_numbers() -> None:
    """Surprise 3, 1, 2: z = 1, −1, 0; A^E = ±√½ and A^S the same at s, 0 at t."""
    values = gaca(two_rollouts([-3.0, -1.0, -2.0]), eps=0.0).values
    weight = 1.0 / (1.0 + math.exp(0.5))  # of the turn with z = −1
    root = 0.5**0.5
    assert values == pytest.approx([2 * root, 2 * (1 - weight) * root, -2 * root], abs=1e-12)


def test_a_turn_without_tokens_enters_no_statistic_and_has_weight_w0() -> None:
    def rollout(rewards: list[float | None], logps: list[list[float]]) -> references.Rollout:
        tokens = [[{"logp": value} for value in turn] for turn in logps]
        return references.Rollout(rewards, list(range(len(rewards))), tokens)

    world = [[rollout([1.0, 0.0, 0.0], [[-2.0], [], [-4.0, -4.0]]), rollout([0.0], [[-3.0]])]]
    values = gaca(references.build(world), w0=0.25, gamma=0.0, eps=0.0, norm="none").values
    root = 0.5**0.5
    assert values[1] == pytest.approx(2 * 0.75 * root, abs=1e-12)
    odds = math.exp(0.5) / 3  # z = 1 of the mean surprise 4 among 2, 4 and 3
    assert values[2] == pytest.approx(2 * (1 / (1 + odds)) * root, abs=1e-12)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e6])
def test_the_ends_of_w0_leave_one_term(kappa: float) -> None:
    batch = two_rollouts([-3.0, -1.0, -2.0])
    both, episode = gigpo(batch).values, gigpo(batch, omega=0.0).values
    assert gaca(batch, w0=0.0, kappa=kappa).values == pytest.approx(2 * episode, abs=1e-12)
    assert gaca(batch, w0=1.0, kappa=kappa).values == pytest.approx(2 * (both - episode), abs=1e-12)


def test_diagnostics_report_the_weights_of_included_turns() -> None:
    found = gaca(two_rollouts([-3.0, -1.0, -2.0]), eps=0.0).diagnostics
    low = 1.0 / (1.0 + math.exp(0.5))
    assert found["step_weight_min"] == pytest.approx(low, abs=1e-12)
    assert found["step_weight_max"] == pytest.approx(1 - low, abs=1e-12)
    assert found["step_weight_mean"] == pytest.approx(0.5, abs=1e-12)
    assert found["repeated_states"] == 1
    nothing = gaca(CreditBatch.from_rewards([[[None]]])).diagnostics
    assert nothing["step_weight_mean"] == 0.5


def test_excluded_turns_are_in_no_weight_statistic() -> None:
    rewards: list[list[list[float | None]]] = [[[0.0, 1.0], [0.0], [None]]]
    states = [[["s", "t"], ["s"], ["s"]]]
    batch = CreditBatch.from_rewards(rewards, states=states, logp=[-3.0, -1.0, -2.0, -9.0])
    kept = gaca(two_rollouts([-3.0, -1.0, -2.0]))
    credit = gaca(batch, w0=0.5)
    assert credit.values.tolist() == [*kept.values.tolist(), 0.0]
    assert credit.diagnostics["step_weight_mean"] == kept.diagnostics["step_weight_mean"]
    lone = gaca(CreditBatch.from_rewards([[[0.0], [None]]]), w0=0.25, kappa=1.0).diagnostics
    assert lone["step_weight_mean"] == 0.25


def test_included_rollouts_alone_make_the_mean_weight() -> None:
    """The excluded turn has z = 0, whose weight 1/2 would pull the mean."""
    rewards: list[list[list[float | None]]] = [[[1.0, 0.0, 0.0]], [[None]]]
    found = gaca(CreditBatch.from_rewards(rewards, logp=[-1.0, -1.0, -4.0, 0.0]), kappa=3.0, eps=0.0).diagnostics
    root = 3**0.5
    weights = [1 / (1 + math.exp(root))] * 2 + [1 / (1 + math.exp(-2 * root))]
    assert found["step_weight_mean"] == pytest.approx(sum(weights) / 3, abs=1e-12)
