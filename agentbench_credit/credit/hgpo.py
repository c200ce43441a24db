"""HGPO: visits compared at every length of shared history, longer histories weighted more. Page: pages/hgpo.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import (
    Groups,
    joint_codes,
    return_z_scores,
    state_groups,
    trajectory_groups,
    visit_diagnostics,
)
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Bounds, Coefficient, Ddof, Share

Exponent = Annotated[float, Bounds(0.0, 20.0)]
"""How much more a longer history weighs."""


@credit_method(
    "hgpo",
    paper="2602.22817",
    evidence="code",
    summary="policies that see their last turns: two visits are the more alike, the more of their history agrees",
)
def hgpo(
    batch: CreditBatch,
    *,
    history: Literal[0, 1, 2, 3, 4, 5] = 2,
    alpha: Exponent = 1.0,
    gamma: Share = 0.95,
    episode: bool = False,
    ddof: Ddof = 0,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = Σ_k w_k A_k / Σ_k w_k to each turn, w_k = (k + 1)^α, k = 1 … K + 1 (2602.22817).

    A_k = (G_it − mean) / (std + eps) over the steps of the group whose last k state keys agree, their own included.
    The sums are over the k for which the step has a sibling and A_k is not exactly 0. No such k gives 0.

    Args:
        batch: The rollouts.
        history: K, how many earlier turns are compared.
        alpha: α of the weights; 0 weighs every length alike.
        gamma: Discount γ of the return-to-go G_it.
        episode: Whether GRPO's advantage of the rollout takes part as k = 0.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in the episode's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    owner = batch.trajectory_of_turn
    returns = batch.discounted_returns(gamma)
    scale = batch.absolute_returns[owner]
    turn = np.arange(batch.n_turns) - batch.turn_offsets[owner]
    total, weight = np.zeros(batch.n_turns), np.zeros(batch.n_turns)
    if episode:
        rollouts = trajectory_groups(batch, baseline_over)
        total = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)[owner]
        weight = (~rollouts.at_mean(batch.returns, batch.absolute_returns))[owner].astype(np.float64)
        total *= weight
    groups = state_groups(batch)
    diagnostics: dict[str, Any] = visit_diagnostics(groups)
    shared = []
    for k in range(1, int(history) + 2):
        if k > 1:  # a step with fewer than k keys drops out here, so what is rolled in from elsewhere has weight 0
            codes = joint_codes(groups.index, np.roll(batch.state, k - 1))
            groups = Groups(codes, groups.weights * (turn >= k - 1), int(codes.max(initial=-1)) + 1)
        shared.append(float(groups.weights[groups.sizes[groups.index] > 1].sum()))
        counts = (k + 1.0) ** alpha * ~groups.at_mean(returns, scale)
        total += counts * groups.z_scores(returns, scale, ddof=ddof, eps=eps)
        weight += counts
    values = np.divide(total, weight, out=np.zeros(batch.n_turns), where=weight > 0)
    turns = max(int(batch.turn_counts[batch.included].sum()), 1)
    diagnostics["shared_history_shares"] = [steps / turns for steps in shared]
    return Credit(values, "turn", diagnostics=diagnostics)
