"""The state graph and its mean-backup values against elimination in exact fractions."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.credit.bench import made_up_batch
from agentbench_credit.credit.graph import StateGraph, mean_backup, state_graph
from agentbench_credit.errors import CreditInputError
from references.graph_values import backup_values, group_targets, group_visits

TRUNCATIONS = st.sampled_from(["terminal", "bootstrap"])
GAMMAS = st.sampled_from([0.0, 0.5, 0.95, 1.0])


def worked_batch() -> CreditBatch:
    states = [["S", "A", "B"], ["S", "A", "C"], ["S", "S", "C", "B"], ["S", "C"]]
    return CreditBatch.from_rewards([[[0, 0, 1], [0, 0, 0], [0, 0, 0, 1], [0, 0]]], states=[states])


def residuals(graph: StateGraph, values: Floats, gamma: float) -> Floats:
    return np.where(graph.kept, graph.batch.reward + gamma * graph.after(values) - values[graph.source], 0.0)


@given(references.worlds(), GAMMAS, TRUNCATIONS, st.sampled_from([0.0, 2.0]))
@settings(max_examples=40)
def test_values_are_those_of_exact_elimination(
    world: references.World, gamma: float, truncation: Any, sink_value: float
) -> None:
    batch = references.build(world)
    graph = state_graph(batch, truncation=truncation)
    try:
        expected = [backup_values(group, gamma, truncation, sink_value) for group in world]
    except ZeroDivisionError:
        assert gamma == 1.0
        assert truncation == "bootstrap"
        with pytest.raises(CreditInputError, match=r"^rollout task\d/\d, turn \d+: .* — take gamma below 1"):
            mean_backup(graph, batch.reward, gamma, sink_value)
        return
    values = mean_backup(graph, batch.reward, gamma, sink_value)
    after = graph.after(values, sink_value)
    for turn, (g, i, t) in enumerate(places(world)):
        if world[g][i].counts:
            target = group_targets(world[g], truncation, 2)[i, t]
            assert values[batch.state[turn]] == pytest.approx(float(expected[g][world[g][i].states[t]]), abs=1e-9)
            assert after[turn] == pytest.approx(float(expected[g][target]), abs=1e-9)


def places(world: references.World) -> list[tuple[int, int, int]]:
    return [(g, i, t) for g, group in enumerate(world) for i, r in enumerate(group) for t in range(len(r.rewards))]


@given(references.worlds(), TRUNCATIONS, st.sampled_from([1, 2]), st.booleans())
@settings(max_examples=30)
def test_visits_edges_and_successors(world: references.World, truncation: Any, sinks: Any, self_loops: bool) -> None:
    batch = references.build(world)
    graph = state_graph(batch, truncation=truncation, sinks=sinks)
    visits = np.zeros(batch.n_states, dtype=int)
    successors = np.zeros(batch.n_states, dtype=int)
    counts: list[int] = []
    for g, group in enumerate(world):
        targets = group_targets(group, truncation, sinks)
        for node, same in group_visits(group).items():
            number = batch.state[places(world).index((g, *same[0]))]
            reached = [targets[visit] for visit in same]
            visits[number] = len(same)
            successors[number] = len({target for target in reached if self_loops or target != node})
            counts += [reached.count(target) for target in set(reached)]
    np.testing.assert_array_equal(graph.visits, visits)
    np.testing.assert_array_equal(graph.successors(self_loops=self_loops), successors)
    assert sorted(graph.edges[2]) == sorted(counts)


@given(references.worlds(), st.sampled_from([0.5, 0.95, 1.0]))
@settings(max_examples=30)
def test_at_the_fixed_point_the_residuals_of_a_node_sum_to_zero(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    graph = state_graph(batch)
    sums = np.bincount(graph.source, residuals(graph, mean_backup(graph, batch.reward, gamma), gamma), batch.n_turns)
    np.testing.assert_allclose(sums, 0.0, atol=1e-9)


def test_worked_values_differ_from_monte_carlo_means() -> None:
    batch = worked_batch()
    graph = state_graph(batch)
    s, a, b, c = range(4)
    values = mean_backup(graph, batch.reward, 0.95)
    assert values[[a, b, c, s]] == pytest.approx([0.625417, 1.0, 0.316667, 0.441965], abs=5e-7)
    exact = Fraction(95, 100) * Fraction(1, 3)  # C: three visits, one leads to B
    assert values[c] == pytest.approx(float(exact), abs=1e-15)
    means = np.bincount(graph.source, batch.discounted_returns(0.95)) / graph.visits
    assert means[[a, b, c, s]] == pytest.approx([0.475, 1.0, 0.316667, 0.532475], abs=5e-7)
    assert graph.successors().tolist() == [3, 2, 1, 2]
    assert graph.successors(self_loops=False).tolist() == [2, 2, 1, 2]
    assert graph.diagnostics == {"states": 4, "repeated_states": 4, "singleton_share": 0.0}


def test_self_loops_without_discount_are_not_singular() -> None:
    """Three of four visits stay: at γ = 1 the value is 4 times the mean reward, the reward of the way out included."""
    batch = CreditBatch.from_rewards([[[1.0, 1.0, 1.0, 5.0]]], states=[[["s"] * 4]])
    assert mean_backup(state_graph(batch), batch.reward, 1.0).tolist() == pytest.approx([8.0])


def loop(first: str, second: str, final: str) -> references.Rollout:
    number = {"a": 0, "b": 1, "c": 2}
    return references.Rollout(
        [1.0, 1.0], [number[first], number[second]], [[], []], ending="truncated", final_state=number[final]
    )


def test_a_loop_that_never_ends_has_no_value_at_gamma_one() -> None:
    ended = references.Rollout([0.0], [2], [[]])
    batch = references.build([[ended, loop("a", "b", "a")]])
    graph = state_graph(batch, truncation="bootstrap")
    with pytest.raises(CreditInputError) as caught:
        mean_backup(graph, batch.reward, 1.0)
    assert str(caught.value) == (
        "rollout task0/1, turn 0: no turn from this state on leads to an end, so with gamma 1 it has no value"
        " — take gamma below 1, or truncation='terminal'"
    )
    assert mean_backup(graph, batch.reward, 0.5)[[1, 2]] == pytest.approx([2.0, 2.0])  # 1 + 0.5 · 2
    assert mean_backup(state_graph(batch), batch.reward, 1.0)[[1, 2]] == pytest.approx([2.0, 1.0])


def test_a_loop_with_a_way_out_has_a_value_at_gamma_one() -> None:
    leaves = references.Rollout([1.0, 0.0], [1, 2], [[], []])
    batch = references.build([[leaves, loop("a", "b", "a")]])
    values = mean_backup(state_graph(batch, truncation="bootstrap"), batch.reward, 1.0)
    assert values == pytest.approx([3.0, 0.0, 4.0])  # V(b) = 1 + V(a)/2, V(a) = 1 + V(b)


def test_truncated_rollouts_end_in_a_sink_where_only_an_excluded_rollout_acted() -> None:
    missing = references.Rollout([None], [2], [[]])
    batch = references.build([[missing, loop("a", "b", "c")]])
    graph = state_graph(batch, truncation="bootstrap")
    assert batch.successors("bootstrap")[2] == 0
    assert graph.ends.tolist() == [True, False, True]
    assert graph.visits.tolist() == [0, 1, 1]
    assert mean_backup(graph, batch.reward, 0.5).tolist() == [0.0, 1.5, 1.0]


def test_one_value_per_sink() -> None:
    batch = worked_batch()
    graph = state_graph(batch)
    values = mean_backup(
        graph, np.zeros(batch.n_turns), 0.5, np.where(batch.success, 10.0, -2.0)[batch.trajectory_of_turn]
    )
    s, a, b, c = range(4)
    assert values[b] == 5.0
    assert values[c] == pytest.approx((0.5 * 5.0 - 1.0 - 1.0) / 3)
    assert values[a] == pytest.approx((0.5 * values[b] + 0.5 * values[c]) / 2)
    assert values[s] == pytest.approx((values[a] + values[s] / 2 + values[c]) / 5)


@given(references.worlds(), GAMMAS, TRUNCATIONS)
@settings(max_examples=30)
def test_other_groups_do_not_change_a_digit(world: references.World, gamma: float, truncation: Any) -> None:
    def values(part: references.World) -> Floats:
        batch = references.build(part)
        return mean_backup(state_graph(batch, truncation=truncation), batch.reward, min(gamma, 0.95))[batch.state]

    np.testing.assert_array_equal(np.concatenate([values([group]) for group in world]), values(world))


@pytest.mark.parametrize("gamma", [0.95, 1.0])
def test_values_of_a_batch_of_full_size(gamma: float) -> None:
    batch = made_up_batch(128, 4_000)
    graph = state_graph(batch)
    values = mean_backup(graph, batch.reward, gamma)
    sums = np.bincount(graph.source, residuals(graph, values, gamma))
    np.testing.assert_allclose(sums, 0.0, atol=1e-10)
    first = dataclasses.replace(graph, kept=graph.kept & (batch.group[batch.trajectory_of_turn] == 0))
    alone = mean_backup(first, batch.reward, gamma)
    np.testing.assert_array_equal(alone[graph.source[first.kept]], values[graph.source[first.kept]])


def test_nothing_to_solve() -> None:
    for rewards in ([[[]]], [[[None]]], [[[1.0, 2.0]]]):
        batch = CreditBatch.from_rewards(rewards)
        graph = state_graph(batch)
        expected = [2.0, 2.0] if batch.included.all() else [0.0] * batch.n_turns
        assert mean_backup(graph, batch.reward, 0.5).tolist() == expected
        assert graph.diagnostics["states"] == 2 * int(batch.included.all())
