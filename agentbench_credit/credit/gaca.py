"""GACA: GiGPO's two terms, mixed by how surprising a turn was. A reconstruction. Page: pages/gaca.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.gigpo import episode_and_step
from agentbench_credit.credit.groups import Groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Norm, Share
from agentbench_credit.credit.tokens import turn_means


@credit_method(
    "gaca",
    paper="2609.12424",
    evidence="abstract",
    summary="gigpo, with more weight on the step term where the policy was unsure (our reconstruction)",
)
def gaca(
    batch: CreditBatch,
    *,
    w0: Share = 0.5,
    kappa: Coefficient = 0.5,
    gamma: Share = 0.95,
    norm: Norm = "std",
    episode_norm: Norm = "std",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = 2 [(1 − w_it) A^E_i + w_it A^S_it] to each turn, w = σ(logit(w0) + κ z).

    A reconstruction: of 2609.12424 only the abstract is public; the formula and its numbers are ours. A^E and A^S are
    GiGPO's. u_it is the turn's mean behaviour negative log-likelihood, in nats per token, and z_it its z-score over all
    turns of the group that have a token; 0 for a turn without one.

    Args:
        batch: The rollouts, with log-probabilities.
        w0: w of a turn of mean surprise; 0 leaves 2 A^E, 1 leaves 2 A^S.
        kappa: Slope κ, per standard deviation of u; 0 gives every turn w0.
        gamma: Discount γ of the return-to-go.
        norm: F of the step advantage: std + eps, or 1.
        episode_norm: The same for A^E.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A^E's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    episode, step, diagnostics = episode_and_step(
        batch, gamma=gamma, norm=norm, episode_norm=episode_norm, ddof=ddof, eps=eps, baseline_over=baseline_over
    )
    owner = batch.trajectory_of_turn
    kept = batch.included[owner]
    spoken = kept & (batch.token_counts > 0)
    turns = Groups(batch.group[owner], spoken.astype(np.float64), batch.n_groups)
    surprise = turns.z_scores(-turn_means(batch.logp, batch.token_offsets), ddof=ddof, eps=eps)
    # σ(logit(w0) + κ z) without the logit, which is infinite for w0 of 0 and 1; e^±700 is finite and not 0.
    odds = w0 * np.exp(np.clip(kappa * surprise, -700.0, 700.0))
    weights = odds / (odds + (1.0 - w0))
    mixed = weights[kept] if kept.any() else np.full(1, w0)
    found = {"step_weight_mean": mixed.mean(), "step_weight_min": mixed.min(), "step_weight_max": mixed.max()}
    values = 2.0 * ((1.0 - weights) * episode + weights * step)
    return Credit(values, "turn", diagnostics=diagnostics | {name: float(value) for name, value in found.items()})
