"""GraphGPO: GRPO plus a comparison of how near to success each turn leads. Page: pages/graphgpo.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch, Ints, Truncation
from agentbench_credit.credit.graph import StateGraph, state_graph
from agentbench_credit.credit.groups import return_z_scores, state_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Positive, Share


@credit_method(
    "graphgpo",
    paper="2605.26684",
    evidence="paper",
    summary="goal-reaching tasks with shared states: credit for turns on a short way to a success of the group",
)
def graphgpo(
    batch: CreditBatch,
    *,
    decay: Share = 0.1,
    scale: Positive = 10.0,
    omega: Coefficient = 1.0,
    truncation: Truncation = "terminal",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = A^E_i + ω A^G_it to each turn (2605.26684).

    A^E is GRPO's advantage. d(s) is the number of turns on the shortest way from the state s to a success in the graph
    of the group's rollouts, 0 after a success; where no way leads there, d is the group's largest d plus 1. A turn that
    leads to u has the value scale · decay^(d(u) + 1). A^G is the value's z-score over all visits of the group's
    rollouts to the state that the turn leaves; 0 for a state visited once, and in a group without a success.

    Args:
        batch: The rollouts.
        decay: What one more turn to success multiplies a value by.
        scale: A turn that ends in success has the value scale · decay.
        omega: Weight ω of the graph's advantage.
        truncation: Whether a truncated rollout ends as a success or failure, or goes on from the state it was cut in.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A^E's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    graph = state_graph(batch, truncation=truncation)
    episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)[batch.trajectory_of_turn]
    distances = success_distances(graph)
    group = graph.by_group.index
    furthest = np.zeros(batch.n_groups, dtype=np.int64)
    np.maximum.at(furthest, group[graph.kept], distances[graph.source[graph.kept]])
    ahead = distances[graph.target]
    ahead = np.where(ahead < 0, furthest[group] + 1, ahead)
    scores = state_groups(batch).z_scores(scale * decay ** (ahead + 1).astype(np.float64), ddof=ddof, eps=eps)
    lost = graph.kept & (distances[graph.source] < 0)
    diagnostics = graph.diagnostics | {
        "groups_without_success": int((furthest == 0).sum()),
        "distance_max": int(furthest.max(initial=0)),
        "unreachable_share": int(lost.sum()) / max(int(graph.kept.sum()), 1),
    }
    return Credit(episode + omega * scores, "turn", diagnostics=diagnostics)


def success_distances(graph: StateGraph) -> Ints:
    """Return the least number of turns from each node to success, by breadth-first search from there; linear in turns.

    Args:
        graph: The graph, with two sinks.

    Returns:
        The distances of the nodes, the failure sink and the success sink [n_nodes + 2], −1 where no way leads to it.
    """
    turns = np.flatnonzero(graph.kept)
    turns = turns[np.argsort(graph.target[turns], kind="stable")]
    into = graph.source[turns]  # the turns that lead to node v are into[starts[v] : starts[v + 1]]
    starts = np.searchsorted(graph.target[turns], np.arange(graph.n_nodes + 3))
    distances = np.full(graph.n_nodes + 2, -1)
    frontier, level = np.array([graph.n_nodes + 1]), 0
    while frontier.size:
        distances[frontier] = level
        counts = starts[frontier + 1] - starts[frontier]
        skipped = np.repeat(starts[frontier] - np.cumsum(counts) + counts, counts)
        before = into[skipped + np.arange(len(skipped))]
        frontier, level = np.unique(before[distances[before] < 0]), level + 1
    return distances
