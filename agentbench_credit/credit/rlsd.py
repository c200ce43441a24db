"""RLSD: GRPO's advantage, each token weighted by a teacher that knows the answer. Page: pages/rlsd.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Share, Width
from agentbench_credit.credit.tokens import bounded_exp, weight_diagnostics


@credit_method(
    "rlsd",
    paper="2604.03128",
    evidence="code",
    summary="token credit from a reference-reading teacher without segments: the control for gear",
    signals=("teacher_logp",),
    teacher="reference",
    scheduled=True,
)
def rlsd(
    batch: CreditBatch,
    *,
    mu: Share = 0.5,
    epsilon: Width = 0.2,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_j = A_i [(1 − μ) + μ clip(exp(sign(A_i) d_j), 1 ± ε)] to each token (2604.03128).

    d_j = log q_j(y_j) − log p_j(y_j), teacher minus behaviour policy, and A_i is GRPO's advantage. μ falls linearly to
    0 with the share of the budget spent.

    Args:
        batch: The rollouts, with the signal ``teacher_logp``.
        mu: Share μ of the teacher's weight at the start of training.
        epsilon: The weight's largest distance ε from 1.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in mean and std: a trajectory, or each of its steps.

    Returns:
        Token-level credit [K].
    """
    advantage = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    sign = batch.over_tokens(np.sign(advantage), "trajectory")
    current = mu * (1.0 - batch.progress)
    teacher = bounded_exp(sign * (batch.signals["teacher_logp"] - batch.logp), epsilon)
    weights = (1.0 - current) + current * teacher
    diagnostics = {"mu": current} | weight_diagnostics(batch, weights)
    return Credit(batch.over_tokens(advantage, "trajectory") * weights, "token", diagnostics=diagnostics)
