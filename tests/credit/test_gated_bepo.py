"""Gated BEPO against its loop reference, its identities and the worked example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.credit.backup import backup_advantages
from agentbench_credit.credit.gated_bepo import gated_bepo
from agentbench_credit.credit.graph import mean_backup, state_graph
from agentbench_credit.credit.grpo import grpo
from agentbench_credit.errors import CreditInputError
from references import graph_values

GAMMAS = st.sampled_from([0.0, 0.5, 0.95, 1.0])
CHOICES = st.fixed_dictionaries(
    {
        "gamma": GAMMAS,
        "gae_lambda": st.sampled_from([0.0, 0.95, 1.0]),
        "fusion": st.sampled_from(["convex", "additive"]),
        "alpha": st.sampled_from(["constant", "successors", "visits", "entropy"]),
        "alpha_max": st.sampled_from([0.0, 0.5, 1.0]),
        "norm": st.sampled_from(["group", "node", "none"]),
        "sinks": st.sampled_from([1, 2]),
        "self_loops": st.booleans(),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), CHOICES), st.sampled_from(["terminal", "bootstrap"]))
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any], truncation: str) -> None:
    params = params | {"truncation": truncation}
    try:
        expected = references.flat(graph_values.bepo(world, gated=True, **params))
    except ZeroDivisionError:
        with pytest.raises(CreditInputError, match="leads to an end"):
            gated_bepo(references.build(world), **params)
        return
    credit = gated_bepo(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_a_penalty_in_the_reward_is_a_reward(world: references.World) -> None:
    values = gated_bepo(references.build(world, invalid_action_penalty=-0.5)).values
    for rollout in (rollout for group in world for rollout in group):
        for t, (reward, bad) in enumerate(zip(rollout.rewards, rollout.invalid, strict=True)):
            if reward is not None and bad:
                rollout.rewards[t] = round(reward - 0.5, 6)
    expected = references.flat(graph_values.bepo(world, gated=True))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


@given(references.worlds(), CHOICES)
@settings(max_examples=30)
def test_no_repeated_state_is_exactly_grpo(world: references.World, params: dict[str, Any]) -> None:
    number = iter(range(10**6))
    for rollout in (rollout for group in world for rollout in group):
        rollout.states = [next(number) for _ in rollout.states]
    batch = references.build(world)
    credit = gated_bepo(batch, **params)
    base = grpo(batch, ddof=params["ddof"], eps=params["eps"], baseline_over=params["baseline_over"])
    np.testing.assert_array_equal(credit.values, base.values[batch.trajectory_of_turn])
    assert credit.diagnostics["gate_share"] == 0.0
    assert not raw(batch, params["gamma"], params["gae_lambda"]).any()


def raw(batch: CreditBatch, gamma: float, gae_lambda: float) -> Floats:
    """A^B before it is standardised."""
    return backup_advantages(state_graph(batch), gamma=gamma, gae_lambda=gae_lambda, norm="none", ddof=1, eps=0.0)


@given(references.worlds(), GAMMAS)
@settings(max_examples=20)
def test_lambda_one_is_the_return_minus_the_value(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    values = mean_backup(state_graph(batch), batch.reward, gamma)[batch.state]
    kept = batch.included[batch.trajectory_of_turn]
    expected = (batch.discounted_returns(gamma) - values)[kept]
    np.testing.assert_allclose(raw(batch, gamma, 1.0)[kept], expected, atol=1e-9)


@given(references.worlds(), GAMMAS)
@settings(max_examples=20)
def test_the_residuals_of_a_node_sum_to_zero(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    np.testing.assert_allclose(np.bincount(batch.state, raw(batch, gamma, 0.0), batch.n_turns), 0.0, atol=1e-9)


@given(references.worlds(), CHOICES)
@settings(max_examples=20)
def test_without_rewards_everything_is_zero(world: references.World, params: dict[str, Any]) -> None:
    for rollout in (rollout for group in world for rollout in group):
        rollout.rewards = [0.0] * len(rollout.rewards)
    assert not gated_bepo(references.build(world), **params).values.any()


@pytest.mark.parametrize("norm", ["group", "node"])
def test_visits_that_agree_give_no_signal_however_they_round(norm: str) -> None:
    """Both ways from s are worth 0.3: one in steps of 0.1, where c is passed twice, and one at once.

    In the second group both are worth 0, once as 0.1 + 0.2 − 0.3: rounding is measured against these terms.
    """
    rewards = [[[0.0, 0.1, 0.1, 0.1], [0.0, 0.3], [0.2, 0.1]], [[0.0, 0.1, 0.2, -0.3], [0.0, 0.0]]]
    states = [[["s", "a", "b", "c"], ["s", "d"], ["x", "c"]], [["s", "a", "b", "c"], ["s", "d"]]]
    batch = CreditBatch.from_rewards(rewards, states=states)
    assert batch.discounted_returns(1.0)[9] != 0.0
    credit = gated_bepo(batch, gamma=1.0, eps=0.0, norm=norm)
    assert credit.diagnostics["gate_share"] > 0.0
    assert not credit.values.any()


def worked_batch() -> CreditBatch:
    states = [["S", "A", "B"], ["S", "A", "C"], ["S", "S", "C", "B"], ["S", "C"]]
    return CreditBatch.from_rewards([[[0, 0, 1], [0, 0, 0], [0, 0, 0, 1], [0, 0]]], states=[states])


BACKUP = [0.4451, 0.3246, 0.0, -0.3987, -0.6104, -0.3167, 0.3664, 0.4305, 0.6333, 0.0, -0.4269, -0.3167]
EPISODE = [0.8660] * 3 + [-0.8660] * 3 + [0.8660] * 4 + [-0.8660] * 2
SHUT = [2, 9]
"""The two visits to B; S, A and C have two successors or more."""


def test_worked_numbers() -> None:
    batch = worked_batch()
    assert raw(batch, 0.95, 0.95) == pytest.approx(BACKUP, abs=5e-5)
    convex = gated_bepo(batch, alpha_max=0.25, norm="none", eps=0.0)
    expected = [e if t in SHUT else 0.75 * e + 0.25 * b for t, (e, b) in enumerate(zip(EPISODE, BACKUP, strict=True))]
    assert convex.values == pytest.approx(expected, abs=1e-4)
    additive = gated_bepo(batch, alpha_max=0.25, norm="none", eps=0.0, fusion="additive")
    expected = [e if t in SHUT else e + 0.25 * b for t, (e, b) in enumerate(zip(EPISODE, BACKUP, strict=True))]
    assert additive.values == pytest.approx(expected, abs=1e-4)
    found = convex.diagnostics
    assert (found["states"], found["repeated_states"], found["singleton_share"]) == (4, 4, 0.0)
    assert found["gate_share"] == pytest.approx(10 / 12)
    assert found["mixing_weight_mean"] == pytest.approx(0.25 * 10 / 12)
    assert found["reconstruction"] is True


def test_what_standardises_the_backup() -> None:
    batch, backup = worked_batch(), np.array(BACKUP)
    whole = (backup - backup.mean()) / backup.std(ddof=1)
    values = gated_bepo(batch, alpha_max=1.0, eps=0.0).values
    assert values[:2] == pytest.approx(whole[:2], abs=5e-4)
    at_a = gated_bepo(batch, alpha_max=1.0, eps=0.0, norm="node").values[[1, 4]]
    assert at_a == pytest.approx([0.5**0.5, -(0.5**0.5)])


def test_the_gate_counts_self_loops_and_sinks_as_told() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 0.0, 1.0], [0.0]]], states=[[["s", "s", "a"], ["b"]]])
    assert gated_bepo(batch).diagnostics["gate_share"] == 0.5
    assert gated_bepo(batch, self_loops=False).diagnostics["gate_share"] == 0.0
    batch = CreditBatch.from_rewards([[[1.0], [0.0], [None]]], states=[[["s"], ["s"], ["s"]]])
    assert gated_bepo(batch).diagnostics["gate_share"] == 1.0
    assert gated_bepo(batch, sinks=1).diagnostics["gate_share"] == 0.0


@given(references.worlds())
@settings(max_examples=20)
def test_excluded_rollouts_change_no_digit_of_their_siblings(world: references.World) -> None:
    kept = [[rollout for rollout in group if rollout.counts] for group in world]
    alone = iter(gated_bepo(references.build(kept), truncation="bootstrap").values)
    everyone = gated_bepo(references.build(world), truncation="bootstrap").values
    expected = [next(alone) if r.counts else 0.0 for group in world for r in group for _ in r.rewards]
    np.testing.assert_array_equal(everyone, expected)
