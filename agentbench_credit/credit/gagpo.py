"""GAGPO: generalised advantage estimation over the mean returns of the group's states. Page: pages/gagpo.md."""

from __future__ import annotations

from typing import Literal

import numpy as np

from agentbench_credit.batch import CreditBatch, Truncation
from agentbench_credit.credit.graph import state_graph
from agentbench_credit.credit.groups import Groups, return_z_scores, state_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Coefficient, Ddof, Share


@credit_method(
    "gagpo",
    paper="2605.13217",
    evidence="paper",
    summary="long tasks with shared states, credit by temporal difference instead of a critic or an episode term",
)
def gagpo(
    batch: CreditBatch,
    *,
    gamma: Share = 0.95,
    gae_lambda: Share = 0.8,
    norm: Literal["group", "batch", "none"] = "group",
    episode_weight: Coefficient = 0.0,
    ratio: Literal["turn", "token"] = "turn",
    truncation: Truncation = "terminal",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
) -> Credit:
    """Assign A_it = (Â_it − mean) / (std + eps) to each turn, statistics over all turns of the group (2605.13217).

    V(s) is the mean of the return-to-go G over all visits of the group's rollouts to the state s, 0 after the end;
    δ_it = r_it + γ V(s_i,t+1) − V(s_it); Â_it = δ_it + γλ Â_i,t+1. The paper describes this in prose; γ, λ and eps are
    inferred.

    Args:
        batch: The rollouts.
        gamma: Discount γ.
        gae_lambda: λ; 0 leaves δ, 1 the Monte-Carlo advantage G − V.
        norm: What Â is standardised over: the group's turns, those of the whole batch, or nothing.
        episode_weight: Weight of GRPO's advantage, added after that; an ablation.
        ratio: The importance ratio: one per turn, the geometric mean over its tokens, or one per token.
        truncation: Whether the value after a truncated rollout's last turn is 0, or V of the state it was cut in.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.

    Returns:
        Turn-level credit [T].
    """
    graph = state_graph(batch, truncation=truncation, sinks=1)
    states = state_groups(batch)
    returns = batch.discounted_returns(gamma)
    # With e = G − V, δ_t = e_t − γ e_{t+1}: the same, but exactly 0 where nothing differs.
    errors = states.centred(returns, graph.scale)
    following = np.append(errors, 0.0)[1:]
    following[batch.last_turns] = -graph.after(states.means(returns))[batch.last_turns]
    values = batch.discounted_sums(errors - gamma * following, gamma * gae_lambda)
    if norm != "none":
        whole = Groups(np.zeros_like(graph.by_group.index), graph.by_group.weights, 1)
        groups = graph.by_group if norm == "group" else whole
        values = groups.z_scores(values, graph.scale, ddof=ddof, eps=eps)
    if episode_weight > 0.0:
        episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over="trajectory")
        values = values + episode_weight * episode[batch.trajectory_of_turn]
    return Credit(values, "turn", ratio, diagnostics=graph.diagnostics)
