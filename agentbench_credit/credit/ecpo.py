"""ECPO: shrunk action means of a state, trusted as far as its actions explain the returns. Page: pages/ecpo.md."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import action_groups, return_z_scores, state_groups, visit_diagnostics
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Bounds, Coefficient, Ddof, NonNegative, Share

Scale = Annotated[float, Bounds(1e-9, 1e9, or_inf=True)]
"""A number of visits, or infinity."""


@credit_method(
    "ecpo",
    paper="2606.05885",
    evidence="paper",
    summary="states with a choice of few actions: credit to the choice, and only where it explains the returns",
)
def ecpo(
    batch: CreditBatch,
    *,
    gamma: Share = 0.95,
    omega: Coefficient = 1.0,
    kappa: NonNegative = 1.0,
    tau: Scale = 4.0,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = A^E_i + ω · gate(s) · A_act(s, a) to each turn (2606.05885).

    A^E is GRPO's advantage. With n_a visits of the group's rollouts that took action a in state s, mean return-to-go
    G_a, and n_s visits in all, mean μ_s: μ_a = (n_a G_a + κ μ_s) / (n_a + κ), and A_act is μ_a standardised over the
    n_s visits. gate(s) = tanh(n_s / τ) · B / (B + W + eps), B = Σ_a n_a (G_a − μ_s)² / n_s the variance between actions
    and W the mean over the visits of (G − G_a)², the variance within them.

    Args:
        batch: The rollouts.
        gamma: Discount γ of the return-to-go.
        omega: Weight ω of the action term.
        kappa: κ, how many visits the state's mean counts as; infinity leaves A^E alone.
        tau: τ, visits at which the first factor of the gate is 0.76; infinity shuts every gate.
        ddof: 1 for the sample's standard deviation, 0 for the population's; of A^E and A_act, B and W are population's.
        eps: Added to both standard deviations, and to B + W.
        baseline_over: What has weight 1 in A^E's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    owner = batch.trajectory_of_turn
    states, actions = state_groups(batch), action_groups(batch)
    scale = batch.absolute_returns[owner]
    # Everything is taken from deviations from μ_s: none of it depends on μ_s itself.
    deviations = states.centred(batch.discounted_returns(gamma), scale)
    action_means = actions.means(deviations)[actions.index]
    trust = actions.sizes / np.maximum(actions.sizes + kappa, 1.0)
    action_values = states.z_scores(trust[actions.index] * action_means, scale, ddof=ddof, eps=eps)
    between = states.means(action_means**2)
    within = states.means((deviations - action_means) ** 2)
    total = between + within + eps
    explained = np.divide(between, total, out=np.zeros_like(total), where=total > 0)
    gate = (np.tanh(states.sizes / tau) * explained)[states.index]
    episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)[owner]
    turns = max(int(states.sizes.sum()), 1)
    opened = np.where(action_values != 0, gate, 0.0)  # excluded turns have no action value
    diagnostics = visit_diagnostics(states) | {
        "gate_share": int((opened > 0).sum()) / turns,
        "gate_mean": float(opened.sum()) / turns,
    }
    return Credit(episode + omega * gate * action_values, "turn", diagnostics=diagnostics)
