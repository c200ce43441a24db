"""GEAR: GRPO's advantage, weighted by segments that a divergent token opens. A reconstruction. Page: pages/gear.md."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, credit_method
from agentbench_credit.credit.params import Baseline, Ddof, NonNegative, Positive, Quantile, Share
from agentbench_credit.credit.segments import Segments, find_segments
from agentbench_credit.credit.tokens import (
    bounded_exp,
    turn_means,
    turn_quantiles,
    weight_diagnostics,
)


@credit_method(
    "gear",
    paper="2605.11853",
    evidence="abstract",
    summary="responses of many tokens and a reference to teach from: credit by segment (our reconstruction)",
    signals=("entropy", "teacher_logp", "kl"),
    teacher="reference",
)
def gear(
    batch: CreditBatch,
    *,
    weight: Literal["directional", "magnitude", "log_ratio"] = "directional",
    anchor_quantile: Quantile = 0.9,
    anchor_floor: NonNegative = 0.05,
    entropy_quantile: Quantile = 0.8,
    epsilon: Share = 0.2,
    temperature: Positive = 1.0,
    c: NonNegative = 1.0,
    mean_preserving: bool = True,
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_j = A_i w_j to each token, w from the divergence of its segment's anchor.

    A reconstruction: of 2605.11853 only the abstract is public. It states reverse KL to a teacher that reads the ground
    truth, and segments that end by entropy; every formula and number beyond that is ours.

    A response is the tokens of one turn. D_j is the signal ``kl``, H_j ``entropy``. The first token outside a segment
    with D_j > τ_D is an anchor and opens a segment; it lasts over the following tokens while H_j < τ_H. S_j is the
    anchor's D inside a segment, D_j elsewhere, and w_j follows from S_j − mean S over the response.

    Args:
        batch: The rollouts, with the signals ``kl``, ``entropy`` and ``teacher_logp``.
        weight: ``"directional"`` clip(exp(−sign(A)(S − mean S)/T), 1 ± ε); ``"magnitude"`` clip(1 + c(S − mean S),
            1 ± ε); ``"log_ratio"`` clip(exp(sign(A) d), 1 ± ε) with d = teacher minus behaviour log-prob, in a segment
            that of the anchor.
        anchor_quantile: τ_D is this quantile of D in the response; inf for no anchor.
        anchor_floor: τ_D is at least this, in nats.
        entropy_quantile: τ_H is this quantile of H in the response; inf for segments to the end of the turn.
        epsilon: The weight's largest distance ε from 1, before `mean_preserving`.
        temperature: T of the directional weight, in nats.
        c: Slope of the magnitude weight, per nat.
        mean_preserving: Divide the weights by their mean over the response, whose n advantages then sum to n A_i.
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.
        baseline_over: What has weight 1 in A_i's mean and std: a trajectory, or each of its steps.

    Returns:
        Token-level credit [K].
    """
    advantage = return_z_scores(batch, ddof=ddof, eps=eps, baseline_over=baseline_over)
    divergence, entropy = batch.signals["kl"], batch.signals["entropy"]
    offsets = batch.token_offsets
    anchor_threshold = np.maximum(turn_quantiles(divergence, offsets, anchor_quantile), anchor_floor)
    end_threshold = turn_quantiles(entropy, offsets, entropy_quantile)
    segments = find_segments(
        divergence > batch.over_tokens(anchor_threshold, "turn"),
        entropy >= batch.over_tokens(end_threshold, "turn"),
        offsets,
    )
    sign = np.sign(advantage)
    if weight == "log_ratio":
        ratio = segments.with_anchor_values(batch.signals["teacher_logp"] - batch.logp)
        weights = bounded_exp(batch.over_tokens(sign, "trajectory") * ratio, epsilon)
    else:
        excess = segments.with_anchor_values(divergence)
        excess -= batch.over_tokens(turn_means(excess, offsets), "turn")
        if weight == "directional":
            weights = bounded_exp(batch.over_tokens(-sign / temperature, "trajectory") * excess, epsilon)
        else:
            weights = np.clip(1.0 + c * excess, 1.0 - epsilon, 1.0 + epsilon)
    if mean_preserving:
        weights /= batch.over_tokens(turn_means(weights, offsets), "turn")
    values = batch.over_tokens(advantage, "trajectory") * weights
    return Credit(values, "token", diagnostics=_diagnostics(batch, segments, weights))


def _diagnostics(batch: CreditBatch, segments: Segments, weights: Floats) -> dict[str, Any]:
    """Count anchors and segments over the included rollouts."""
    kept = batch.over_tokens(batch.included, "trajectory")
    lengths = segments.lengths[kept[segments.anchors]]
    tokens = max(int(kept.sum()), 1)
    return {
        "anchors": len(lengths),
        "anchor_share": len(lengths) / tokens,
        "segment_length_mean": float(lengths.mean()) if lengths.size else 0.0,
        "segment_length_max": int(lengths.max(initial=0)),
        "segment_token_share": int(lengths.sum()) / tokens,
    } | weight_diagnostics(batch, weights)
