"""BEPO, the control without a gate, against its loop reference and gated_bepo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.bepo import bepo
from agentbench_credit.credit.gated_bepo import gated_bepo
from agentbench_credit.credit.grpo import grpo
from references import graph_values

PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.95]),
        "gae_lambda": st.sampled_from([0.0, 0.95, 1.0]),
        "fusion": st.sampled_from(["convex", "additive"]),
        "alpha": st.sampled_from(["constant", "successors", "visits", "entropy"]),
        "alpha_max": st.sampled_from([0.0, 0.5, 1.0]),
        "norm": st.sampled_from(["group", "node", "none"]),
        "sinks": st.sampled_from([1, 2]),
        "self_loops": st.booleans(),
        "truncation": st.sampled_from(["terminal", "bootstrap"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = bepo(references.build(world), **params)
    assert credit.level == "turn"
    expected = references.flat(graph_values.bepo(world, gated=False, **params))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@given(references.worlds(), PARAMS, st.integers(1, 3))
@settings(max_examples=20)
def test_it_is_gated_bepo_where_a_gate_is_open(world: references.World, params: dict[str, Any], states: int) -> None:
    """With two rollouts more, a state that every rollout visits leads to two others: its gate is open."""
    for rollout in (rollout for group in world for rollout in group):
        rollout.states = [state % states for state in rollout.states]
    for group in world:
        for second in (10, 11):
            group.append(references.Rollout([0.0, 1.0], [0, second], [[], []]))
    batch = references.build(world)
    gated, plain = gated_bepo(batch, **params), bepo(batch, **params)
    opening = [state == 0 for group in world for rollout in group for state in rollout.states]
    np.testing.assert_array_equal(gated.values[opening], plain.values[opening])


@given(references.worlds(), PARAMS)
@settings(max_examples=20)
def test_without_weight_only_the_episode_is_left(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    base = grpo(batch, ddof=params["ddof"], eps=params["eps"], baseline_over=params["baseline_over"])
    values = bepo(batch, **params | {"alpha_max": 0.0}).values
    np.testing.assert_array_equal(values, base.values[batch.trajectory_of_turn])


@given(references.worlds(), st.sampled_from(["group", "node", "none"]))
@settings(max_examples=20)
def test_without_repeated_states_a_share_of_grpo_is_left(world: references.World, norm: str) -> None:
    """Nothing takes the place of the share that the backup would have had: the reason for the gate."""
    number = iter(range(10**6))
    for rollout in (rollout for group in world for rollout in group):
        rollout.states = [next(number) for _ in rollout.states]
    batch = references.build(world)
    base = grpo(batch).values[batch.trajectory_of_turn]
    np.testing.assert_array_equal(bepo(batch, norm=norm, alpha_max=0.25).values, 0.75 * base)
    np.testing.assert_array_equal(bepo(batch, norm=norm, fusion="additive").values, base)


def test_mixing_weights() -> None:
    """s is left 5 times: twice to itself, twice to a and once to the end; its self-loops count or not."""
    rewards = [[[0.0, 0.0, 0.0, 1.0], [0.0, 1.0], [0.0]]]
    batch = CreditBatch.from_rewards(rewards, states=[[["s", "s", "s", "a"], ["s", "a"], ["s"]]])
    from_s, from_a = [0, 1, 2, 4, 6], {"constant": 1.0, "visits": 1 / 2}
    entropy = (0.8 * np.log(5 / 2) + 0.2 * np.log(5)) / np.log(3)
    without_loops = (2 / 3 * np.log(3 / 2) + 1 / 3 * np.log(3)) / np.log(2)
    for alpha, self_loops, weight in (
        ("constant", True, 1.0),
        ("visits", True, 4 / 5),
        ("successors", True, 2 / 3),
        ("successors", False, 1 / 2),
        ("entropy", True, entropy),
        ("entropy", False, without_loops),
    ):
        credit = bepo(batch, alpha=alpha, self_loops=self_loops, alpha_max=0.8, norm="none", fusion="additive")
        whole = bepo(batch, alpha_max=1.0, norm="none", fusion="additive")
        base = grpo(batch).values[batch.trajectory_of_turn]
        ratio = (credit.values - base)[from_s] / (whole.values - base)[from_s]
        assert ratio == pytest.approx(0.8 * weight)
        mean = 0.8 * (5 * weight + 2 * from_a.get(alpha, 0.0)) / 7
        assert credit.diagnostics["mixing_weight_mean"] == pytest.approx(mean)


def test_two_sinks_tell_success_from_failure() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], states=[[["s"], ["s"]]])
    assert bepo(batch, alpha="successors").diagnostics["mixing_weight_mean"] == pytest.approx(0.25)
    assert bepo(batch, alpha="successors", sinks=1).diagnostics["mixing_weight_mean"] == 0.0


def test_it_says_that_it_is_a_reconstruction() -> None:
    assert bepo(CreditBatch.from_rewards([[[1.0]]])).diagnostics["reconstruction"] is True
