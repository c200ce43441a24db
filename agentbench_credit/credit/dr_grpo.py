"""Dr. GRPO: GRPO's advantage without the standard deviation. Page: pages/dr_grpo.md."""

from __future__ import annotations

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import trajectory_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline


@credit_method(
    "dr_grpo",
    paper="2503.20783",
    evidence="code",
    summary="grpo without its preference for tasks that are nearly always or nearly never solved",
)
def dr_grpo(batch: CreditBatch, *, baseline_over: Baseline = "trajectory") -> Credit:
    """Assign A_i = R_i − mean R over the group to the whole rollout (2503.20783).

    Args:
        batch: The rollouts.
        baseline_over: What has weight 1 in the mean: a trajectory, or each of its steps.

    Returns:
        Trajectory-level credit [N].
    """
    groups = trajectory_groups(batch, baseline_over)
    return Credit(groups.centred(batch.returns, batch.absolute_returns), "trajectory")
