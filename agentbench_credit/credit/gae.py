"""GAE: PPO's advantage, each turn against the values of a learned critic. Page: pages/gae.md."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats, Truncation
from agentbench_credit.credit.groups import Groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Coefficient, Ddof, Share


@credit_method(
    "gae",
    paper="1506.02438",
    evidence="paper",
    summary="a baseline that needs no group: PPO with a learned critic, when its training can be afforded",
    signals=lambda *, truncation, **_: ("values", "final_values") if truncation == "bootstrap" else ("values",),
)
def gae(
    batch: CreditBatch,
    *,
    gamma: Share = 0.99,
    gae_lambda: Share = 0.95,
    norm: Literal["batch", "none"] = "batch",
    truncation: Truncation = "terminal",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
) -> Credit:
    """Assign A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V(s_{t+1}) − V(s_t), to each turn (1506.02438, eq. 16).

    V is the signal ``values``, a critic's estimate at the last prompt token of each turn; 0 after the last turn. The
    targets for the critic are A_t + V(s_t) before normalisation, the λ-return; with λ = 1 the return-to-go.

    Args:
        batch: The rollouts, with the signal ``values`` [T], and ``final_values`` [N] if `truncation` asks for it.
        gamma: Discount γ of a turn.
        gae_lambda: λ: 0 trusts the critic after one turn, 1 the return only.
        norm: ``"batch"`` subtracts the mean over all turns of the batch and divides by std + eps, ``"none"`` neither.
        truncation: V after the last turn of a truncated rollout: ``"terminal"`` 0, ``"bootstrap"`` its final value.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.

    Returns:
        Turn-level credit [T] with value targets [T]; those of excluded rollouts mean nothing.
    """
    values = batch.signals["values"]
    following = _following_values(batch, values, truncation)
    residuals = batch.reward + gamma * following - values
    advantages = batch.discounted_sums(residuals, gamma * gae_lambda)
    included = batch.included[batch.trajectory_of_turn]
    result = advantages
    if norm == "batch":
        everyone = Groups(np.zeros(batch.n_turns, dtype=np.int64), included.astype(np.float64), 1)
        # What each advantage was summed from, to tell equal advantages from those that rounding sets apart.
        terms = np.abs(batch.reward) + gamma * np.abs(following) + np.abs(values)
        scale = batch.discounted_sums(terms, gamma * gae_lambda)
        result = everyone.z_scores(advantages, scale, ddof=ddof, eps=eps)
    diagnostics = _diagnostics(batch, advantages[included], truncation)
    return Credit(result, "turn", diagnostics=diagnostics, value_targets=advantages + values)


def _following_values(batch: CreditBatch, values: Floats, truncation: Truncation) -> Floats:
    """Return V(s_{t+1}) of each turn [T]; 0 after the end of a rollout."""
    following = np.append(values[1:], 0.0)[: batch.n_turns]
    ends = np.zeros(batch.n_trajectories)
    if truncation == "bootstrap":
        ends[batch.truncated] = batch.signals["final_values"][batch.truncated]
    following[batch.last_turns] = ends[batch.turn_counts > 0]
    return following


def _diagnostics(batch: CreditBatch, advantages: Floats, truncation: Truncation) -> dict[str, Any]:
    """Describe the advantages of the included rollouts before normalisation hides their size."""
    bootstrapped = batch.truncated & batch.included if truncation == "bootstrap" else np.zeros(0, dtype=bool)
    return {
        "bootstrapped_rollouts": int(bootstrapped.sum()),
        "advantage_mean": float(advantages.mean()) if advantages.size else 0.0,
        "advantage_std": float(advantages.std()) if advantages.size else 0.0,
    }
