"""RLOO: REINFORCE with the mean of the other rollouts as baseline. Page: pages/rloo.md."""

from __future__ import annotations

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import trajectory_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline


@credit_method(
    "rloo",
    paper="2402.14740",
    evidence="code",
    summary="an unbiased baseline on the reward's own scale, when rewards are comparable across tasks",
)
def rloo(batch: CreditBatch, *, baseline_over: Baseline = "trajectory") -> Credit:
    """Assign A_i = R_i − mean_{j≠i} R_j over the group to the whole rollout (2402.14740, RLOO).

    Args:
        batch: The rollouts.
        baseline_over: What has weight 1 in the mean of the others: a trajectory, or each of its steps.

    Returns:
        Trajectory-level credit [N].
    """
    groups = trajectory_groups(batch, baseline_over)
    return Credit(groups.minus_mean_of_others(batch.returns, batch.absolute_returns), "trajectory")
