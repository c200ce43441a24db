"""CREST: praise and blame grow where a teacher that knows the answer agrees with them. Page: pages/crest.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Share, Width
from agentbench_credit.credit.tokens import bounded_exp, included_tokens, turn_z_scores, weight_diagnostics


@credit_method(
    "crest",
    paper="",
    evidence="paper",
    summary="a reference-reading teacher that only ever adds credit, most on tokens the policy was unsure of",
    signals=("teacher_logp",),
    teacher="reference",
)
def crest(
    batch: CreditBatch,
    *,
    epsilon: Width = 0.28,
    strength: Share = 0.3,
    surprise: Share = 0.5,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_j = A_i (1 + λ_j (w_j − 1)) to each token (CREST).

    w_j = clip(exp(sign(A_i) d_j / 2), 1 ± ε) with d_j = log q_j(y_j) − log p_j(y_j), teacher minus behaviour policy.
    λ_j is 0 unless sign(A_i) d_j > 0, and then clip(λ (1 + s (2σ(z_j) − 1)), 0, λ), where z_j is the z-score of
    −log p_j(y_j) among the tokens of the turn. Our mapping: the advantage of a turn is GRPO's A_i of its rollout.

    Args:
        batch: The rollouts, with the signal ``teacher_logp``.
        epsilon: The largest distance ε of w from 1.
        strength: λ, the most that w counts.
        surprise: s, how much less w counts on tokens that were likelier than the turn's others; 0 for no difference.
        ddof: 1 for the sample's standard deviation, 0 for the population's; of A_i and of z.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A_i's mean and std: a trajectory, or each of its steps.

    Returns:
        Token-level credit [K].
    """
    advantage = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    agreement = batch.signals["teacher_logp"] - batch.logp
    agreement *= batch.over_tokens(np.sign(advantage), "trajectory")
    agrees = agreement > 0.0
    agreement *= 0.5
    weights = bounded_exp(agreement, epsilon)
    # 2σ(z) − 1 = tanh(z/2), and the upper clip holds exactly for z ≥ 0.
    trust = turn_z_scores(batch.logp, batch.token_offsets, ddof=ddof, eps=eps)
    np.maximum(trust, 0.0, out=trust)
    trust *= -0.5
    np.tanh(trust, out=trust)
    trust *= strength * surprise
    trust += strength
    trust *= agrees
    weights -= 1.0
    weights *= trust
    weights += 1.0
    counted = included_tokens(batch, agrees)
    share = int(np.count_nonzero(counted)) / max(len(counted), 1)
    diagnostics = {"agreeing_token_share": share} | weight_diagnostics(batch, weights)
    weights *= batch.over_tokens(advantage, "trajectory")
    return Credit(weights, "token", diagnostics=diagnostics)
