"""EMPG: GRPO's advantage scaled by how sure a turn was, with a bonus for leading to a sure one. Page: pages/empg.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import Groups, return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof
from agentbench_credit.credit.tokens import turn_means


@credit_method(
    "empg",
    paper="2509.09265",
    evidence="paper",
    summary="long rollouts with one reward at the end: sure turns are credited more, unsure ones less",
    signals=("entropy",),
)
def empg(
    batch: CreditBatch,
    *,
    k: Coefficient = 1.0,
    k_next: Coefficient = 1.0,
    zeta: Coefficient = 0.05,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = A_i g(Ĥ_it) + ζ f(Ĥ_i,t+1), less its mean over the batch, to each turn (2509.09265).

    g(x) = exp(−k x) / mean exp(−k Ĥ) and f(x) = exp(−k_next x). Ĥ is the turn's mean token entropy, brought to 0 … 1 by
    the smallest and the largest of the batch; 0 where they are equal. Every statistic is over the turns of included
    rollouts that have tokens, each with weight 1. A turn without tokens gets 0, and gives the turn before it no bonus.

    Args:
        batch: The rollouts, with the signal ``entropy``.
        k: Slope k of the scale g; 0 leaves A_i as it is.
        k_next: Slope of the bonus f.
        zeta: Weight ζ of the bonus.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in A_i's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    owner = batch.trajectory_of_turn
    spoken = batch.included[owner] & (batch.token_counts > 0)
    everyone = Groups(np.zeros(batch.n_turns, dtype=np.int64), spoken.astype(np.float64), 1)
    entropy = turn_means(batch.signals["entropy"], batch.token_offsets)
    heard = entropy[spoken]
    low, high = heard.min(initial=np.inf), heard.max(initial=-np.inf)
    scaled = np.zeros(len(heard)) if everyone.all_equal(entropy)[0] else (heard - low) / (high - low)
    scales = np.exp(-k * scaled)
    scales /= scales.mean() if scales.size else 1.0
    bonus = np.zeros(batch.n_turns)
    bonus[spoken] = np.exp(-k_next * scaled)
    following = np.append(bonus, 0.0)[1:]
    following[batch.last_turns] = 0.0
    values = zeta * following
    values[spoken] += return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)[owner[spoken]] * scales
    diagnostics = {
        "turn_entropy_min": float(low) if heard.size else 0.0,
        "turn_entropy_max": float(high) if heard.size else 0.0,
        "scale_min": float(scales.min()) if heard.size else 1.0,
        "scale_max": float(scales.max()) if heard.size else 1.0,
    }
    return Credit(everyone.centred(values), "turn", diagnostics=diagnostics)
