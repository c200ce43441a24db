"""OPSD: no advantage, the student learns from itself with the reference in view. Page: pages/opsd.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats, sums_by
from agentbench_credit.credit.method import Credit, Distillation, credit_method
from agentbench_credit.credit.params import Cap


@credit_method(
    "opsd",
    paper="2601.18734",
    evidence="code",
    summary="a reference for every task and no trust in the reward: self-distillation in place of a policy gradient",
    signals=("taught",),
    teacher="reference",
)
def opsd(batch: CreditBatch, *, token_clip: Cap = 0.05) -> Credit:
    """Declare the loss mean_j min(½ KL(q_j‖m_j) + ½ KL(p_j‖m_j), token_clip), m = (p + q)/2 (2601.18734).

    p is the student; q the initial weights, frozen, with the reference in the prompt. The mean runs over the tokens of
    turns that have such a prompt.

    Args:
        batch: The rollouts, with the signal ``taught``.
        token_clip: Most that one token's divergence counts, in nats; inf for no bound.

    Returns:
        Advantage 0 for each rollout [N], and the distillation.
    """
    weights, diagnostics = taught_tokens(batch)
    distillation = Distillation(weights, token_clip=None if math.isinf(token_clip) else token_clip)
    return Credit(np.zeros(batch.n_trajectories), "trajectory", diagnostics=diagnostics, distillation=distillation)


def taught_tokens(batch: CreditBatch) -> tuple[Floats, dict[str, Any]]:
    """Return which tokens a teacher knows more about, and what was left out.

    Args:
        batch: The rollouts, with the signal ``taught``.

    Returns:
        1 for each token [K] of a taught turn of an included rollout, else 0; and the diagnostics
        ``untaught_rollouts``, the included rollouts without a taught turn, and ``distilled_token_share``, the share of
        the included rollouts' tokens with weight 1.
    """
    taught = batch.signals["taught"]
    turns = sums_by(batch.trajectory_of_turn, taught, batch.n_trajectories)
    kept = batch.over_tokens(batch.included, "trajectory")
    weights = np.where(kept, batch.over_tokens(taught, "turn"), 0.0)
    diagnostics = {
        "untaught_rollouts": int((batch.included & (turns == 0)).sum()),
        "distilled_token_share": float(weights.sum()) / max(int(kept.sum()), 1),
    }
    return weights, diagnostics
