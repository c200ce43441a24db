"""GraphGPO against its loop reference, its identities and worked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS
from agentbench_credit.credit.graph import state_graph
from agentbench_credit.credit.graphgpo import graphgpo, success_distances
from references.graph_paths import graphgpo as reference

GRPO = METHODS.get("grpo")
PARAMS = st.fixed_dictionaries(
    {
        "decay": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "scale": st.sampled_from([1.0, 10.0]),
        "omega": st.sampled_from([0.0, 0.5, 1.0]),
        "truncation": st.sampled_from(["terminal", "bootstrap"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    credit = graphgpo(batch, **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(reference(world, **params)), rtol=0, atol=1e-9)
    np.testing.assert_allclose(graphgpo(batch).values, references.flat(reference(world)), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=20)
def test_a_penalty_outside_the_reward_is_added_to_its_turn(world: references.World) -> None:
    apart = graphgpo(references.build(world, invalid_action_penalty=-0.25, penalty_in_reward=False)).values
    invalid = [bad and r.counts for group in world for r in group for bad in r.invalid]
    wanted = np.array(references.flat(reference(world))) - 0.25 * np.array(invalid)
    np.testing.assert_allclose(apart, wanted, rtol=0, atol=1e-9)


@given(references.worlds(), st.sampled_from(["no repeated state", "no success", "no weight", "no decay"]))
@settings(max_examples=40)
def test_without_anything_to_compare_it_is_exactly_grpo(world: references.World, case: str) -> None:
    number = iter(range(10**6))
    for rollout in (rollout for group in world for rollout in group):
        if case == "no repeated state":
            rollout.states = [next(number) for _ in rollout.states]
        rollout.success = rollout.success and case != "no success"
    batch = references.build(world)
    credit = graphgpo(batch, omega=float(case != "no weight"), decay=1.0 if case == "no decay" else 0.1)
    np.testing.assert_array_equal(credit.values, GRPO(batch).values[batch.trajectory_of_turn])


@given(references.worlds(), st.sampled_from(["terminal", "bootstrap"]))
@settings(max_examples=20)
def test_distances_obey_the_shortest_path_equation(world: references.World, truncation: Any) -> None:
    graph = state_graph(references.build(world), truncation=truncation)
    distances = success_distances(graph)
    assert distances[graph.n_nodes + 1] == 0
    assert distances[graph.n_nodes] == -1
    for node in np.unique(graph.source[graph.kept]):
        after = distances[graph.target[graph.kept & (graph.source == node)]]
        shortest = after[after >= 0].min() + 1 if (after >= 0).any() else -1
        assert distances[node] == shortest


def worked_batch() -> CreditBatch:
    """A short and a long way from s to success, through a and through b and a, and one to failure."""
    return CreditBatch.from_rewards(
        [[[0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0]]], states=[[["s", "a"], ["s", "b", "a"], ["s", "c"]]]
    )


def test_worked_numbers() -> None:
    # d(a) = 1, d(b) = 2, d(s) = 2, so c gets 3: s's turns have the values 0.1, 0.01 and 0.001
    values = graphgpo(worked_batch(), eps=0.0).values
    steps = np.array([0.1, 0.01, 0.001])
    to_a, to_b, to_c = (steps - steps.mean()) / steps.std(ddof=1)
    won, lost = 1 / 3**0.5, -2 / 3**0.5
    assert values == pytest.approx([won + to_a, won, won + to_b, won, won, lost + to_c, lost], abs=1e-12)


def test_unreachable_is_one_more_than_the_group_has_and_not_the_batch() -> None:
    """The second task's successes are one turn away, so its failures count as two; the first task's as four."""
    far = [["s", "b", "a"], ["s", "c"], ["s", "b", "a"]]
    near = [["s"], ["s", "c"], ["s"]]
    rewards = [[[0.0, 0.0, 1.0], [0.0, 0.0], [0.0, 0.0, 1.0]], [[1.0], [0.0, 0.0], [1.0]]]
    credit = graphgpo(CreditBatch.from_rewards(rewards, states=[far, near]), decay=0.5, scale=8.0, eps=1.0, ddof=0)
    alone = graphgpo(CreditBatch.from_rewards(rewards[1:], states=[near]), decay=0.5, scale=8.0, eps=1.0, ddof=0)
    np.testing.assert_array_equal(credit.values[8:], alone.values)
    # s → success 4, s → c 8·0.5³ = 1, s → success 4: mean 3, std √2, and A^E ±(1/3, 2/3)/(√2/3 + 1)
    episode = np.array([1 / 3, -2 / 3]) / (2**0.5 / 3 + 1.0)
    step = np.array([1.0, -2.0]) / (2**0.5 + 1.0)
    assert alone.values == pytest.approx([*(episode + step), episode[1], episode[0] + step[0]], abs=1e-12)
    assert credit.diagnostics["distance_max"] == 3


def test_diagnostics() -> None:
    found = graphgpo(worked_batch()).diagnostics
    assert (found["distance_max"], found["groups_without_success"]) == (2, 0)
    assert found["unreachable_share"] == pytest.approx(1 / 7)
    rewards: list[list[list[float | None]]] = [[[0.0], [1.0, None]], [[1.0]]]
    found = graphgpo(CreditBatch.from_rewards(rewards)).diagnostics
    assert (found["distance_max"], found["groups_without_success"], found["unreachable_share"]) == (1, 1, 0.5)


def test_a_group_of_one_and_equal_ways_get_exactly_zero() -> None:
    batch = CreditBatch.from_rewards([[[1.0]], [[0.0, 1.0], [0.0, 1.0]]], states=[[["s"]], [["s", "a"], ["s", "b"]]])
    assert not graphgpo(batch, eps=0.0).values.any()
