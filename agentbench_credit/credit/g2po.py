"""G2PO: GRPO plus the values of the states that turns lead to, per state and over the task. Page: pages/g2po.md."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from agentbench_credit.batch import CreditBatch, Truncation
from agentbench_credit.credit.graph import state_graph
from agentbench_credit.credit.groups import return_z_scores, state_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Bounds, Coefficient, Ddof, Share

EndValue = Annotated[float, Bounds(-1e6, 1e6)]
"""What the end of a rollout is worth, in units of reward."""


@credit_method(
    "g2po",
    paper="2606.22995",
    evidence="code",
    summary="long tasks with shared states: credit for turns that lead to states of higher value",
)
def g2po(
    batch: CreditBatch,
    *,
    gamma: Share = 0.95,
    success_value: EndValue = 10.0,
    failure_value: EndValue = 0.0,
    omega: Coefficient = 1.0,
    truncation: Truncation = "terminal",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = A^E_i + ω (A^N_it + A^T_it) to each turn (2606.22995).

    A^E is GRPO's advantage. v(s) is the mean of γ^(T−t) R over all visits of the group's rollouts to the state s, T − t
    the number of turns from the visit to the rollout's end, its own turn included. n(s) is v(s), or a constant after a
    success or a failure. A^N is the z-score of n(u), u the state that the turn leads to, over all visits to the state s
    that it leaves, 0 for a state visited once. A^T is the z-score of n(u) − v(s) over all turns of the group.

    Args:
        batch: The rollouts.
        gamma: Discount γ per turn to the end.
        success_value: n after a success, in units of reward.
        failure_value: n after a failure, in units of reward.
        omega: Weight ω of the two terms.
        truncation: Whether a truncated rollout ends as a success or failure, or goes on from the state it was cut in.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A^E's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    owner = batch.trajectory_of_turn
    graph, states = state_graph(batch, truncation=truncation), state_groups(batch)
    episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)[owner]
    remaining = batch.turn_offsets[1:][owner] - np.arange(batch.n_turns)
    values = states.sums(gamma**remaining * batch.returns[owner]) / np.maximum(states.total_weights, 1.0)
    ahead = graph.after(values, np.where(batch.success, success_value, failure_value)[owner])
    rounding = np.maximum(graph.scale, max(abs(success_value), abs(failure_value)))
    node = states.z_scores(ahead, rounding, ddof=ddof, eps=eps)
    task = graph.by_group.z_scores(ahead - values[graph.source], rounding, ddof=ddof, eps=eps)
    return Credit(episode + omega * (node + task), "turn", diagnostics=graph.diagnostics)
