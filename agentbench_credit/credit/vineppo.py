"""VinePPO: each turn against the mean return of fresh rollouts before and after it. Page: pages/vineppo.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.credit.groups import ROUNDING
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Share


@credit_method(
    "vineppo",
    paper="2410.01679",
    evidence="code",
    summary="the most exact credit per turn, for environments with snapshots and a budget for many more rollouts",
    signals=("rollout_values",),
)
def vineppo(batch: CreditBatch, *, gamma: Share = 1.0) -> Credit:
    """Assign A_t = r_t + γ V(s_{t+1}) − V(s_t) to each turn (2410.01679, section 4).

    V is the signal ``rollout_values``, the mean return-to-go of fresh rollouts from the state before each turn,
    discounted with the same γ; 0 after the last turn, whether the task or a turn limit ended the rollout.

    Args:
        batch: The rollouts, with the signal ``rollout_values`` [T].
        gamma: Discount γ of a turn.

    Returns:
        Turn-level credit [T], exactly 0 where the terms cancel but for rounding.
    """
    values = batch.signals["rollout_values"]
    following = np.append(values, 0.0)[1:]
    following[batch.last_turns] = 0.0
    advantages = batch.reward + gamma * following - values
    scale = np.abs(batch.reward) + gamma * np.abs(following) + np.abs(values)
    advantages[np.abs(advantages) <= ROUNDING * scale] = 0.0
    return Credit(advantages, "turn", diagnostics=_diagnostics(batch, values, advantages))


def _diagnostics(batch: CreditBatch, values: Floats, advantages: Floats) -> dict[str, Any]:
    """Describe values and advantages of the included rollouts."""
    starts = values[batch.turn_offsets[:-1][batch.included]]
    counted = advantages[batch.included[batch.trajectory_of_turn]]
    return {
        "start_value_mean": float(starts.mean()) if starts.size else 0.0,
        "advantage_mean": float(counted.mean()) if counted.size else 0.0,
        "advantage_std": float(counted.std()) if counted.size else 0.0,
        "zero_share": float((counted == 0).mean()) if counted.size else 0.0,
    }
