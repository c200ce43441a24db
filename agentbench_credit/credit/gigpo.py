"""GiGPO: GRPO plus a comparison of all visits to the same state. Page: pages/gigpo.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.credit.groups import return_z_scores, state_groups, trajectory_groups, visit_diagnostics
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Norm, Share


@credit_method(
    "gigpo",
    paper="2505.10978",
    evidence="code",
    summary="long tasks whose rollouts pass through the same states again and again",
)
def gigpo(
    batch: CreditBatch,
    *,
    gamma: Share = 0.95,
    omega: Coefficient = 1.0,
    norm: Norm = "std",
    episode_norm: Norm = "std",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = A^E_i + ω A^S_it to each turn (2505.10978, eq. 8).

    A^E is GRPO's advantage. A^S_it = (G_it − mean) / F over all visits of the group's rollouts to the state s_it,
    repeat visits inside one rollout included; 0 for a state visited once.

    Args:
        batch: The rollouts.
        gamma: Discount γ of the return-to-go G_it.
        omega: Weight ω of the step advantage.
        norm: F of the step advantage: std + eps, or 1.
        episode_norm: The same for A^E; the released code uses one setting for both.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A^E's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    episode, step, diagnostics = episode_and_step(
        batch, gamma=gamma, norm=norm, episode_norm=episode_norm, ddof=ddof, eps=eps, baseline_over=baseline_over
    )
    return Credit(episode + omega * step, "turn", diagnostics=diagnostics)


def episode_and_step(
    batch: CreditBatch, *, gamma: float, norm: Norm, episode_norm: Norm, ddof: Ddof, eps: float, baseline_over: Baseline
) -> tuple[Floats, Floats, dict[str, float]]:
    """Return GiGPO's two terms before they are weighted (2505.10978, eq. 3 to 7).

    Args:
        batch: The rollouts.
        gamma: Discount γ of the return-to-go.
        norm: F of the step advantage: std + eps, or 1.
        episode_norm: The same for A^E.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A^E's mean and std.

    Returns:
        A^E and A^S of each turn [T], and the diagnostics: those of `visit_diagnostics`, and in
        ``lone_rollouts_with_credit`` how many rollouts without a sibling have an A^S that is not 0.
    """
    if episode_norm == "std":
        episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    else:
        episode = trajectory_groups(batch, baseline_over).centred(batch.returns, batch.absolute_returns)
    owner = batch.trajectory_of_turn
    states = state_groups(batch)
    returns = batch.discounted_returns(gamma)
    scale = batch.absolute_returns[owner]
    step = states.z_scores(returns, scale, ddof=ddof, eps=eps) if norm == "std" else states.centred(returns, scale)
    credited = np.bincount(owner[step != 0], minlength=batch.n_trajectories) > 0
    alone = trajectory_groups(batch).sizes[batch.group] == 1
    lone = {"lone_rollouts_with_credit": int((credited & alone).sum())}
    return episode[owner], step, visit_diagnostics(states) | lone
