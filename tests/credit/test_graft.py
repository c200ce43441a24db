"""GRAFT against its loop reference, its identities and worked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.graft import graft
from agentbench_credit.errors import ConfigError, CreditInputError
from references.graph_paths import graft as reference

PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "gae_lambda": st.sampled_from([0.0, 0.8, 0.95, 1.0]),
        "hops": st.integers(0, 6),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([1e-6, 1e-3]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = graft(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(reference(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_reference_with_defaults_and_bootstrap(world: references.World) -> None:
    batch = references.build(world)
    for truncation in ("terminal", "bootstrap"):
        wanted = references.flat(reference(world, truncation=truncation))
        np.testing.assert_allclose(graft(batch, truncation=truncation).values, wanted, rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_a_penalty_outside_the_reward_is_added_to_its_turn(world: references.World) -> None:
    apart = graft(references.build(world, invalid_action_penalty=-0.25, penalty_in_reward=False)).values
    wanted = references.flat(reference(world))
    invalid = [bad and r.counts for group in world for r in group for bad in r.invalid]
    np.testing.assert_allclose(apart, np.array(wanted) - 0.25 * np.array(invalid), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_no_repeated_state_gives_exactly_zero(world: references.World) -> None:
    number = iter(range(10**6))
    for rollout in (rollout for group in world for rollout in group):
        rollout.states = [next(number) for _ in rollout.states]
        rollout.final_state = -1
    credit = graft(references.build(world))
    assert not credit.values.any()
    assert credit.diagnostics["repeated_states"] == 0


@given(references.worlds())
@settings(max_examples=20)
def test_returns_of_zero_give_exactly_zero(world: references.World) -> None:
    for rollout in (rollout for group in world for rollout in group if rollout.counts):
        rollout.rewards = [0.0 for _ in rollout.rewards]
    assert not graft(references.build(world)).values.any()


@given(references.worlds())
@settings(max_examples=20)
def test_turns_of_one_edge_have_one_advantage_and_a_lonely_edge_has_a_sign(world: references.World) -> None:
    batch = references.build(world)
    values = graft(batch).values
    by_edge: dict[tuple[int, int, bool], set[float]] = {}
    for t in np.flatnonzero(batch.included[batch.trajectory_of_turn]):
        # A rollout's end is success or failure, so the flag is part of the edge only there.
        ends = int(batch.next_state[t]) < 0
        edge = (
            int(batch.state[t]),
            int(batch.next_state[t]),
            bool(ends and batch.success[batch.trajectory_of_turn[t]]),
        )
        by_edge.setdefault(edge, set()).add(float(values[t]))
    assert all(len(found) == 1 for found in by_edge.values())
    for source in {edge[0] for edge in by_edge}:
        leaving = [value for edge, found in by_edge.items() if edge[0] == source for value in found]
        if len(leaving) == 1:
            assert leaving[0] in {-1.0, 0.0, 1.0}


def fork() -> CreditBatch:
    """Three ways from s: to a, which leads to success and failure, twice to b, which fails, and to success."""
    return CreditBatch.from_rewards(
        [[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0]]],
        states=[[["s", "a"], ["s", "a"], ["s", "b"], ["s", "b"], ["s"]]],
    )


def test_worked_numbers_without_looking_ahead() -> None:
    # γ = 0.5: V(a) = 0.25, V(b) = 0, V(s) = (2·0.125 + 2·0 + 0.5)/5 = 0.15; A = −0.025, −0.15, 0.35, mean 0.058333
    values = graft(fork(), gamma=0.5, hops=0, eps=0.0, ddof=0).values
    edges = np.array([-0.025, -0.15, 0.35])
    to_a, to_b, to_end = (edges - edges.mean()) / edges.std()
    # a has the edges 0.25 and −0.25; b has one edge, with A = 0
    assert values == pytest.approx([to_a, 1.0, to_a, -1.0, to_b, 0.0, to_b, 0.0, to_end], abs=1e-12)


def test_a_state_with_one_edge_gets_the_sign_of_what_lies_ahead() -> None:
    """From s all go to a; from a one rollout fails and two succeed, so the mean over a's two edges is below 0."""
    batch = CreditBatch.from_rewards(
        [[[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]], states=[[["s", "a"], ["s", "a"], ["s", "a"]]]
    )
    # V(a) = γ·2/3, A(success) = γ/3, A(failure) = −2γ/3: mean over the edges −γ/6
    ahead = graft(batch, hops=1, ddof=0, eps=0.0)
    assert ahead.values == pytest.approx([-1.0, 1.0, -1.0, 1.0, -1.0, -1.0], abs=1e-12)
    assert graft(batch, hops=0, ddof=0, eps=0.0).values[::2].tolist() == [0.0, 0.0, 0.0]
    assert ahead.diagnostics["edges"] == 3
    assert ahead.diagnostics["single_edge_share"] == 0.5
    assert ahead.diagnostics["mixed_sinks"] == 0


def test_different_returns_at_one_end_are_averaged_and_counted() -> None:
    """Two failures returned −1 and −3: the end is worth −2 to both, so neither way there is better."""
    batch = CreditBatch.from_rewards([[[-1.0], [-1.0, -2.0], [4.0]]], states=[[["s"], ["s", "b"], ["s"]]])
    credit = graft(batch, gamma=1.0, ddof=0, eps=0.0, hops=0)
    # V(b) = −2, V(s) = (−2 − 2 + 4)/3 = 0: the edges −2, −2, 4 have z-scores −1/√2, −1/√2, √2
    assert credit.values == pytest.approx([-(0.5**0.5), -(0.5**0.5), 0.0, 2**0.5], abs=1e-12)
    assert credit.diagnostics["mixed_sinks"] == 1


def test_a_group_of_one_compares_its_own_visits_and_a_self_loop_is_an_edge() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 0.0, 1.0]]], states=[[["s", "s", "s"]]])
    # V(s) = γ(2V(s) + 1)/3 = 0.25 at γ = 0.5: the loop has A = −0.125, the end 0.25
    values = graft(batch, gamma=0.5, hops=0, eps=0.0, ddof=0).values
    assert values == pytest.approx([-1.0, -1.0, 1.0], abs=1e-12)


def test_excluded_rollouts_enter_no_mean_and_no_edge() -> None:
    rewards: list[list[list[float | None]]] = [[[1.0], [0.0], [0.0, None]]]
    credit = graft(CreditBatch.from_rewards(rewards, states=[[["s"], ["s"], ["s", "x"]]]), eps=0.0)
    assert credit.values == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0, 0.0], abs=1e-12)
    assert credit.diagnostics["edges"] == 2


def test_parts_of_a_hop_are_refused() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        graft(fork(), hops=1.5)


def test_a_state_that_never_ends_has_no_value_without_discount() -> None:
    loop = references.Rollout([0.0], [0], [[]], ending="truncated", final_state=0)
    batch = references.build([[loop]])
    with pytest.raises(CreditInputError, match="gamma"):
        graft(batch, gamma=1.0, truncation="bootstrap")
    assert graft(batch, gamma=0.5, truncation="bootstrap").values.tolist() == [0.0]
