"""GiGPO: GRPO plus a comparison of all visits to the same state. Page: pages/gigpo.md."""

from __future__ import annotations

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import return_z_scores, state_groups, trajectory_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Ddof, NonNegative, Norm, Share


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
    omega: NonNegative = 1.0,
    norm: Norm = "std",
    episode_norm: Norm = "std",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
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
    if episode_norm == "std":
        episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    else:
        episode = trajectory_groups(batch, baseline_over).centred(batch.returns, batch.absolute_returns)
    states = state_groups(batch)
    returns = batch.discounted_returns(gamma)
    scale = batch.absolute_returns[batch.trajectory_of_turn]
    step = states.z_scores(returns, scale, ddof=ddof, eps=eps) if norm == "std" else states.centred(returns, scale)
    visited = int((states.sizes > 0).sum())
    singletons = int((states.sizes == 1).sum())
    diagnostics = {
        "states": visited,
        "repeated_states": visited - singletons,
        "singleton_share": singletons / visited if visited else 0.0,
    }
    return Credit(episode[batch.trajectory_of_turn] + omega * step, "turn", diagnostics=diagnostics)
