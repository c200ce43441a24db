"""SDPO: no advantage, the student learns from itself with feedback in view. Page: pages/sdpo.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.method import Credit, Distillation, credit_method
from agentbench_credit.credit.opsd import taught_tokens
from agentbench_credit.credit.params import Cap, Count, Share


@credit_method(
    "sdpo",
    paper="2601.20802",
    evidence="code",
    summary="no reference, but some success or telling feedback: self-distillation in place of a policy gradient",
    signals=("taught",),
    teacher="feedback",
)
def sdpo(
    batch: CreditBatch,
    *,
    ratio_clip: Cap = 2.0,
    top_k: Count = 100,
    teacher_decay: Share = 0.05,
) -> Credit:
    """Declare the loss mean_j min(π(y_j)/π_b(y_j), ratio_clip) · JSD(p_j, q_j) (2601.20802).

    p is the student; q the teacher, which trails the student's weights and sees a successful sibling of the rollout
    or, without one, what the environment said at the end. The divergence is over the student's `top_k` likeliest
    tokens with the rest in one. No gradient flows through the ratio. The mean runs over the tokens of turns that have
    a teacher's prompt; a rollout without one is left out.

    Args:
        batch: The rollouts, with the signal ``taught``.
        ratio_clip: Most that the ratio to the behaviour policy π_b counts; inf for no bound.
        top_k: Tokens of the vocabulary that are told apart.
        teacher_decay: Share of the student that flows into the teacher's weights at each optimiser step.

    Returns:
        Advantage 0 for each rollout [N], and the distillation.
    """
    weights, diagnostics = taught_tokens(batch)
    distillation = Distillation(weights, top_k=top_k, ratio_clip=ratio_clip, teacher_decay=teacher_decay)
    return Credit(np.zeros(batch.n_trajectories), "trajectory", diagnostics=diagnostics, distillation=distillation)
