"""What bepo and gated_bepo share: the mean-backup advantage, the mixing weight of a node, and how both are fused."""

from __future__ import annotations

from typing import Literal

import numpy as np

from agentbench_credit.batch import Bools, Floats, sums_by
from agentbench_credit.credit.graph import StateGraph, mean_backup
from agentbench_credit.credit.groups import state_groups
from agentbench_credit.credit.params import Ddof

Alpha = Literal["constant", "successors", "visits", "entropy"]
"""What the mixing weight of a node grows with, see `mixing_weights`."""
BackupNorm = Literal["group", "node", "none"]
"""Which turns the backup advantage is standardised over: the group's, the visits of the same node, or none."""
Fusion = Literal["convex", "additive"]
"""Whether the backup advantage takes the place of a share of the episode advantage, or is added to it."""


def backup_advantages(
    graph: StateGraph, *, gamma: float, gae_lambda: float, norm: BackupNorm, ddof: Ddof, eps: float
) -> Floats:
    """Return A^B: GAE over the residuals δ = r + γV(v) − V(u) of the mean-backup values, then standardised.

    The values are the means of r + γV(v) over the visits of each node, so δ is its deviation from that mean. A node
    whose visits all agree, as when there is only one, gets exactly 0.

    Args:
        graph: The graph.
        gamma: Discount γ.
        gae_lambda: λ.
        norm: What A^B is standardised over.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.

    Returns:
        The advantages [T].
    """
    batch = graph.batch
    nodes = state_groups(batch)
    backed_up = batch.reward + gamma * graph.after(mean_backup(graph, batch.reward, gamma))
    advantages = batch.discounted_sums(nodes.centred(backed_up, graph.scale), gamma * gae_lambda)
    if norm == "none":
        return advantages
    groups = nodes if norm == "node" else graph.by_group
    return groups.z_scores(advantages, graph.scale, ddof=ddof, eps=eps)


def mixing_weights(graph: StateGraph, *, alpha: Alpha, alpha_max: float, self_loops: bool) -> Floats:
    """Return α(u) = alpha_max · f(u) of each node [n_nodes], f from 0 to 1.

    ``"constant"``: f = 1. ``"visits"``: f = 1 − 1/N(u). ``"successors"``: f = 1 − 1/k(u), k distinct successors.
    ``"entropy"``: f = H(u)/log k(u), H the entropy of the visits' successors, 0 if k < 2. The formulas are ours.

    Args:
        graph: The graph.
        alpha: Which f.
        alpha_max: The weight where f is 1.
        self_loops: Whether a node counts among its own successors.

    Returns:
        The weights, 0 for a node that is never left unless alpha is ``"constant"``.
    """
    if alpha == "constant":
        return np.full(graph.n_nodes, alpha_max)
    if alpha == "visits":
        return alpha_max * (1.0 - 1.0 / np.maximum(graph.visits, 1))
    branches = np.maximum(graph.successors(self_loops=self_loops), 1)
    if alpha == "successors":
        return alpha_max * (1.0 - 1.0 / branches)
    source, target, counts = graph.edges
    counted = self_loops | (source != target)
    source, counts = source[counted], counts[counted].astype(np.float64)
    shares = counts / sums_by(source, counts, graph.n_nodes)[source]
    entropy = sums_by(source, -shares * np.log(shares), graph.n_nodes)
    return alpha_max * np.minimum(entropy / np.log(np.maximum(branches, 2)), 1.0)


def fuse(episode: Floats, backup: Floats, weights: Floats, fusion: Fusion) -> Floats:
    """Return (1 − w) A^E + w A^B, or with additive fusion A^E + w A^B.

    Args:
        episode: A^E of each turn [T].
        backup: A^B of each turn [T].
        weights: w of each turn [T].
        fusion: Which of the two.

    Returns:
        The advantages [T].
    """
    if fusion == "additive":
        return episode + weights * backup
    return (1.0 - weights) * episode + weights * backup


def mean_over_turns(graph: StateGraph, values: Floats | Bools) -> float:
    """Return the mean of values [T] over the kept turns, 0 if there is none."""
    return float(values[graph.kept].mean()) if graph.kept.any() else 0.0
