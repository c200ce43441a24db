"""RTMC: mean returns of a state's actions against the state's, shrunk to the success rate. Page: pages/rtmc.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import action_groups, state_groups, trajectory_groups, visit_diagnostics
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Coefficient, NonNegative, Share


@credit_method(
    "rtmc",
    paper="2604.11037",
    evidence="code",
    summary="states that are visited a few times each, where a plain mean over two or three visits is too noisy",
)
def rtmc(
    batch: CreditBatch,
    *,
    gamma: Share = 0.99,
    n0: NonNegative = 2.0,
    success_return: Coefficient = 1.0,
) -> Credit:
    """Assign A = Q(s, a) − (n_s V(s) + n0 p) / (n_s + n0) to each turn (2604.11037).

    V(s) is the mean return-to-go of the group's n_s visits to the state, Q(s, a) that of the visits that took the
    turn's action, p the share of the group's rollouts that succeed. A group of one rollout gets 0.

    Args:
        batch: The rollouts.
        gamma: Discount γ of the return-to-go.
        n0: How many visits the success rate counts as; infinity leaves the success rate alone.
        success_return: What p = 1 is worth on the scale of the rewards; the formula has 1, for rewards of 1 and 0.

    Returns:
        Turn-level credit [T].
    """
    owner = batch.trajectory_of_turn
    rollouts, states, actions = trajectory_groups(batch), state_groups(batch), action_groups(batch)
    returns = batch.discounted_returns(gamma)
    priors = success_return * rollouts.means(batch.success.astype(np.float64))[batch.group][owner]
    # Q − V is taken over deviations from V, so that equal returns give exactly 0.
    above_state = actions.means(states.centred(returns, batch.absolute_returns[owner]))[actions.index]
    prior_weight = 1.0 - states.sizes / np.maximum(states.sizes + n0, 1.0)
    above_prior = states.means(returns)[states.index] - priors
    compared = (rollouts.sizes[batch.group] > 1) & batch.included
    values = np.where(compared[owner], above_state + prior_weight[states.index] * above_prior, 0.0)
    included = max(int(batch.included.sum()), 1)
    diagnostics = visit_diagnostics(states) | {
        "success_rate": int(batch.success[batch.included].sum()) / included,
        "return_mean": float(batch.returns.sum()) / included,
    }
    return Credit(values, "turn", diagnostics=diagnostics)
