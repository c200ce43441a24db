"""MT-GRPO: the outcome for every turn, what came before it for the first turn. Page: pages/mt_grpo.md."""

from __future__ import annotations

import numpy as np

from agentbench_credit.batch import CreditBatch, sums_by
from agentbench_credit.credit.groups import return_z_scores, trajectory_groups
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof


@credit_method(
    "mt_grpo",
    paper="2505.11821",
    evidence="code",
    summary="short tool use with a reward for the call and one for the answer: the first turn gets both",
)
def mt_grpo(
    batch: CreditBatch,
    *,
    c: Coefficient = 1.0,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A^O_i + c A^T_i to the first turn of a rollout and A^O_i to the later ones (2505.11821).

    A^O is the group's z-score of the outcome, A^T that of the turn rewards. A rollout without a tool result gets the
    z-score of the sum of both on all its tokens. Our mapping: the first tool result comes after the first turn, if a
    second follows; the outcome is the reward of the last turn; the turn rewards are the sum of all earlier ones.

    Args:
        batch: The rollouts.
        c: Weight of A^T.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in means and stds: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    owner = batch.trajectory_of_turn
    groups = trajectory_groups(batch, baseline_over)
    outcome = np.zeros(batch.n_trajectories)
    outcome[batch.turn_counts > 0] = batch.reward[batch.last_turns]
    earlier = batch.reward.copy()
    earlier[batch.last_turns] = 0.0
    turn_reward = sums_by(owner, earlier, batch.n_trajectories)
    turn_scale = sums_by(owner, np.abs(earlier), batch.n_trajectories)
    outcome_advantage = groups.z_scores(outcome, ddof=ddof, eps=eps)
    turn_advantage = groups.z_scores(turn_reward, turn_scale, ddof=ddof, eps=eps)
    summed = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    single = batch.turn_counts == 1
    values = np.where(single, summed, outcome_advantage)[owner]
    several = batch.turn_counts > 1
    values[batch.turn_offsets[:-1][several]] += c * turn_advantage[several]
    diagnostics = {
        "single_turn_rollouts": int((single & batch.included).sum()),
        "groups_without_turn_signal": int(groups.all_equal(turn_reward, turn_scale).sum()),
    }
    return Credit(values, "turn", diagnostics=diagnostics)
