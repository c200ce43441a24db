"""REINFORCE++ with the group's baseline: centred in the group, scaled over the batch. Page: pages/reinforce_pp.md."""

from __future__ import annotations

import math

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import Groups, trajectory_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof


@credit_method(
    "reinforce_pp",
    paper="2501.03262",
    evidence="code",
    summary="small groups, whose own standard deviation is mostly noise: one scale for the whole batch",
)
def reinforce_pp(
    batch: CreditBatch,
    *,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_i = d_i / (std d + eps), d_i = R_i − mean R over the group, to the whole rollout (2501.03262).

    The standard deviation is that of d over all rollouts of the batch, those with d = 0 included.

    Args:
        batch: The rollouts.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in the mean and the std: a trajectory, or each of its steps.

    Returns:
        Trajectory-level credit [N].
    """
    groups = trajectory_groups(batch, baseline_over)
    differences = groups.centred(batch.returns, batch.absolute_returns)
    # The weighted mean of d is 0 in every group, so in the batch. Subtracting its rounding would touch exact zeros.
    whole = Groups(np.zeros_like(groups.index), groups.weights, 1)
    weight, squares = float(whole.total_weights[0]), float(whole.sums(differences**2)[0])
    deviation = math.sqrt(squares / max(weight - ddof, 1.0))
    values = differences / (deviation + eps) if deviation > 0.0 else differences
    return Credit(values, "trajectory", diagnostics={"batch_std": deviation})
