"""80/20: GRPO's advantage on the tokens of highest entropy only. Page: pages/high_entropy.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Share
from agentbench_credit.credit.tokens import included_tokens, quantile_of


@credit_method(
    "high_entropy",
    paper="2506.01939",
    evidence="code",
    summary="long reasoning without a teacher: only the tokens where the policy wavered are trained",
    signals=("entropy",),
)
def high_entropy(
    batch: CreditBatch,
    *,
    entropy_quantile: Share = 0.8,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_j = A_i to each token with H_j ≥ τ, 0 to the others (2506.01939, "80/20").

    τ is a quantile of the entropy over all tokens of the batch's included rollouts; A_i is GRPO's advantage.

    Args:
        batch: The rollouts, with the signal ``entropy``.
        entropy_quantile: The quantile τ, interpolated between the two nearest values; tokens that equal it are kept.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in A_i's mean and std: a trajectory, or each of its steps.

    Returns:
        Token-level credit [K].
    """
    advantage = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    entropy = batch.signals["entropy"]
    counted = included_tokens(batch, entropy)
    threshold = quantile_of(counted, entropy_quantile) if counted.size else 0.0
    values = batch.over_tokens(advantage, "trajectory")
    values[entropy < threshold] = 0.0
    kept = int(np.count_nonzero(counted >= threshold))
    diagnostics = {"entropy_threshold": threshold, "kept_token_share": kept / max(len(counted), 1)}
    return Credit(values, "token", diagnostics=diagnostics)
