"""BEPO: GRPO's advantage mixed with that of exact backups on a state graph. A reconstruction. Page: pages/bepo.md."""

from __future__ import annotations

from agentbench_credit.batch import CreditBatch, Truncation
from agentbench_credit.credit.backup import (
    Alpha,
    BackupNorm,
    Fusion,
    backup_advantages,
    fuse,
    mean_over_turns,
    mixing_weights,
)
from agentbench_credit.credit.graph import Sinks, state_graph
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Ddof, Share


@credit_method(
    "bepo",
    paper="2608.06861",
    evidence="abstract",
    summary="as gated_bepo, without its gate: the control that shows what the gate does (our reconstruction)",
)
def bepo(
    batch: CreditBatch,
    *,
    gamma: Share = 0.95,
    gae_lambda: Share = 0.95,
    fusion: Fusion = "convex",
    alpha: Alpha = "constant",
    alpha_max: Share = 0.5,
    norm: BackupNorm = "group",
    sinks: Sinks = 2,
    self_loops: bool = True,
    truncation: Truncation = "terminal",
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_it = (1 − α) A^E_i + α A^B_it to each turn.

    A reconstruction: of 2608.06861 only the abstract is public. It states the graph of a group's rollouts, the mean
    backup on it, and an adaptive mix with the episode advantage. Every formula and number beyond that is ours.

    A^E is GRPO's advantage. V(u) = (1/N(u)) Σ [r + γ V(v)] over all N(u) visits of the group's rollouts to the state u,
    v the state after each, with value 0 after the end. A^B is GAE along the rollout over δ = r + γ V(v) − V(u).
    α = α(u) belongs to the state.

    Args:
        batch: The rollouts.
        gamma: Discount γ of the backup and of A^B.
        gae_lambda: λ of A^B.
        fusion: ``"convex"`` as above, or ``"additive"``: A^E + α A^B.
        alpha: What α(u) grows with, see `mixing_weights`.
        alpha_max: The largest α(u), and the only one if alpha is ``"constant"``.
        norm: What A^B is standardised over: all turns of the group, the visits of the node, or nothing.
        sinks: 2 tells ending in success from ending in failure as successors of a node; values are 0 in both.
        self_loops: Whether a node counts among its own successors.
        truncation: Whether a truncated rollout's last turn leads to a sink, or to the state it was cut in.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviations.
        baseline_over: What has weight 1 in A^E's mean and std: a trajectory, or each of its steps.

    Returns:
        Turn-level credit [T].
    """
    graph = state_graph(batch, truncation=truncation, sinks=sinks)
    episode = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)[batch.trajectory_of_turn]
    backup = backup_advantages(graph, gamma=gamma, gae_lambda=gae_lambda, norm=norm, ddof=ddof, eps=eps)
    weights = mixing_weights(graph, alpha=alpha, alpha_max=alpha_max, self_loops=self_loops)[graph.source]
    values = fuse(episode, backup, weights, fusion)
    diagnostics = graph.diagnostics | {"mixing_weight_mean": mean_over_turns(graph, weights)}
    return Credit(values, "turn", diagnostics=diagnostics)
