"""GRPO: group-relative return. Page: pages/grpo.md."""

from __future__ import annotations

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof


@credit_method(
    "grpo",
    paper="2402.03300",
    evidence="code",
    summary="the baseline to beat: one advantage per rollout, no critic, any reward",
)
def grpo(
    batch: CreditBatch, *, ddof: Ddof = 1, eps: Coefficient = 1e-6, baseline_over: Baseline = "trajectory"
) -> Credit:
    """Assign A_i = (R_i − mean R) / (std R + eps) over the group to the whole rollout (2402.03300, outcome reward).

    Args:
        batch: The rollouts.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in mean and std: a trajectory, or each of its steps.

    Returns:
        Trajectory-level credit [N].
    """
    return Credit(return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over), "trajectory")
