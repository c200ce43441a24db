"""GRAFT: temporal differences over the edges of a group's state graph, standardised per node. Page: pages/graft.md."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats, Ints, Truncation, sums_by
from agentbench_credit.credit.graph import StateGraph, mean_backup, state_graph
from agentbench_credit.credit.groups import ROUNDING, Groups, state_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Bounds, Coefficient, Ddof, Share

Hops = Annotated[int, Bounds(0, 50, whole=True)]
"""How many steps ahead of an edge to look; the bound keeps the number of walks within a float."""


@credit_method(
    "graft",
    paper="2609.28963",
    evidence="paper",
    summary="rollouts that often pass through the same states, credit from the state graph without an episode term",
)
def graft(
    batch: CreditBatch,
    *,
    gamma: Share = 0.95,
    gae_lambda: Share = 0.95,
    hops: Hops = 10,
    truncation: Truncation = "terminal",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
) -> Credit:
    """Assign each turn the z-score, among the edges that leave its state, of Â_e = A_e + Σ_k (γλ)^k m_k (2609.28963).

    V(u) = (1/N(u)) Σ γ V(v) over the N(u) visits of the group's rollouts to the state u, v the state after each. After
    the end V is R: the mean return of the group's successes after a success, that of its failures after a failure. An
    edge e is a pair (u, v), however often it was taken; A_e = γ V(v) − V(u). m_k is the mean A over the edges reached
    from e in exactly k further steps, an edge counted once per walk that leads to it. Where one edge only leaves a
    state, the turn gets the sign of Â_e.

    Args:
        batch: The rollouts.
        gamma: Discount γ.
        gae_lambda: λ; 0 leaves A_e.
        hops: The largest k.
        truncation: Whether a truncated rollout ends as a success or failure, or goes on from the state it was cut in.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.

    Returns:
        Turn-level credit [T].

    Raises:
        CreditInputError: γ is 1 and some state never leads to an end, which only ``truncation="bootstrap"`` allows.
    """
    graph = state_graph(batch, truncation=truncation)
    sink_values, mixed_sinks = _sink_values(graph)
    values = mean_backup(graph, np.zeros(batch.n_turns), gamma, sink_values)
    # V(u) is the mean of γ V(v) over the visits of u; centring gives exactly 0 where all of them agree.
    residuals = state_groups(batch).centred(gamma * graph.after(values, sink_values), graph.scale)
    first = _first_turns(graph)
    is_first = graph.kept & (first == np.arange(batch.n_turns))
    advantages = residuals + graph.after(
        _means_ahead(graph, np.flatnonzero(is_first), residuals, gamma * gae_lambda, hops)
    )
    edges = Groups(graph.source, is_first.astype(np.float64), graph.n_nodes)
    scores = edges.z_scores(advantages, graph.scale, ddof=ddof, eps=eps)[first]
    single = edges.sizes[graph.source] == 1
    signs = np.where(np.abs(advantages) > ROUNDING * graph.scale, np.sign(advantages), 0.0)
    diagnostics = graph.diagnostics | {
        "edges": int(is_first.sum()),
        "single_edge_share": float(single[graph.kept].mean()) if graph.kept.any() else 0.0,
        "mixed_sinks": mixed_sinks,
    }
    return Credit(np.where(single, signs, scores), "turn", diagnostics=diagnostics)


def _sink_values(graph: StateGraph) -> tuple[Floats, int]:
    """Return the mean return of the rollouts that end as each turn's does [T], and how many means hide differences."""
    batch, last = graph.batch, graph.batch.last_turns
    ending = np.zeros(batch.n_trajectories)
    ending[batch.trajectory_of_turn[last]] = graph.kept[last] & graph.ends[last]
    sinks = Groups(2 * batch.group + batch.success, ending, 2 * batch.n_groups)
    means = sinks.sums(batch.returns) / np.maximum(sinks.total_weights, 1.0)
    mixed = int((~sinks.all_equal(batch.returns, batch.absolute_returns)).sum())
    return means[sinks.index][batch.trajectory_of_turn], mixed


def _first_turns(graph: StateGraph) -> Ints:
    """Return the first turn that takes the same edge as each turn [T]; a turn that is not kept has itself."""
    first = np.arange(len(graph.kept))
    turns = np.flatnonzero(graph.kept)
    codes = graph.source * (graph.n_nodes + 2) + graph.target
    _, index, inverse = np.unique(codes[turns], return_index=True, return_inverse=True)
    first[turns] = turns[index[inverse]]
    return first


def _means_ahead(graph: StateGraph, edges: Ints, residuals: Floats, factor: float, hops: int) -> Floats:
    """Return Σ_{k=1..hops} factor^k · mean residual of the edges that walks of k steps from a node end with [n_nodes].

    Args:
        graph: The graph.
        edges: One turn for each distinct edge.
        residuals: A of each turn [T].
        factor: γλ.
        hops: The largest k.

    Returns:
        The sums, in which a k without any walk counts 0.
    """
    source, target = graph.source[edges], np.minimum(graph.target[edges], graph.n_nodes)
    total, ahead = residuals[edges], np.zeros(graph.n_nodes)
    walks = np.ones(len(edges))
    for k in range(1, hops + 1):
        sums, counts = (np.append(sums_by(source, x, graph.n_nodes), 0.0) for x in (total, walks))
        ahead += factor**k * (sums / np.maximum(counts, 1.0))[:-1]
        total, walks = sums[target], counts[target]
    return ahead
