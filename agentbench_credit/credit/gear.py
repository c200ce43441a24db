"""GEAR: GRPO's advantage, weighted by segments that a divergent token opens. A reconstruction. Page: pages/gear.md."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from agentbench_credit.batch import Bools, CreditBatch, Floats, sums_by
from agentbench_credit.credit.groups import return_z_scores
from agentbench_credit.credit.method import Credit, SignalName, credit_method
from agentbench_credit.credit.params import Baseline, Coefficient, Count, Ddof, NonNegative, Positive, Quantile, Width
from agentbench_credit.credit.segments import Segments, find_segments, fixed_segments
from agentbench_credit.credit.tokens import bounded_exp, included_tokens, turn_means, turn_quantiles, weight_diagnostics

Divergence = Literal["full", "topk", "sampled"]
DIVERGENCE_SIGNALS: dict[str, SignalName] = {"full": "kl", "topk": "kl_topk", "sampled": "teacher_logp"}


def _signals(*, kl: Divergence, weight: str, segments: str, **_: Any) -> tuple[SignalName, ...]:
    """Return what is read with these parameters."""
    needed: set[SignalName] = {DIVERGENCE_SIGNALS[kl]}
    if weight == "log_ratio":
        needed.add("teacher_logp")
    if segments == "entropy":
        needed.add("entropy")
    return tuple(sorted(needed))


@credit_method(
    "gear",
    paper="2605.11853",
    evidence="abstract",
    summary="responses of many tokens and a reference to teach from: credit by segment (our reconstruction)",
    signals=_signals,
    teacher="reference",
)
def gear(
    batch: CreditBatch,
    *,
    kl: Divergence = "full",
    weight: Literal["directional", "magnitude", "log_ratio"] = "directional",
    anchors: Literal["divergence", "random"] = "divergence",
    anchor_quantile: Quantile = 0.9,
    anchor_floor: NonNegative = 0.05,
    segments: Literal["entropy", "fixed"] = "entropy",
    entropy_quantile: Quantile = 0.8,
    segment_length: Count = 16,
    segment_value: Literal["anchor", "mean"] = "anchor",
    epsilon: Width = 0.2,
    temperature: Positive = 1.0,
    c: Coefficient = 1.0,
    mean_preserving: bool = True,
    ddof: Ddof = 1,
    eps: Coefficient = 1e-6,
    baseline_over: Baseline = "trajectory",
) -> Credit:
    """Assign A_j = A_i w_j to each token, w from the divergence of its segment's anchor.

    A reconstruction: of 2605.11853 only the abstract is public. It states reverse KL to a teacher that reads the ground
    truth, and segments that end by entropy; every formula and number beyond that is ours.

    A response is the tokens of one turn. D_j is the divergence, H_j the entropy. The first token outside a segment
    with D_j > τ_D is an anchor and opens a segment; it lasts over the following tokens while H_j < τ_H. S_j is the
    anchor's D inside a segment, D_j elsewhere, and w_j follows from S_j − mean S over the response.

    Args:
        batch: The rollouts, with the signals that the parameters ask for.
        kl: D: ``"full"`` over the vocabulary (signal ``kl``), ``"topk"`` over its likeliest tokens (``kl_topk``), or
            ``"sampled"`` log p_j(y_j) − log q_j(y_j) of the token itself (from ``teacher_logp``).
        weight: ``"directional"`` clip(exp(−sign(A)(S − mean S)/T), 1 ± ε); ``"magnitude"`` clip(1 + c(S − mean S),
            1 ± ε); ``"log_ratio"`` clip(exp(sign(A) d), 1 ± ε) with d = teacher minus behaviour log-prob, in a segment
            that of the anchor.
        anchors: ``"random"``, a control: tokens drawn at the rate at which D exceeds τ_D in the response.
        anchor_quantile: τ_D is this quantile of D in the response; inf for no anchor.
        anchor_floor: τ_D is at least this, in nats.
        segments: ``"fixed"``, a control: `segment_length` tokens, whatever the entropy.
        entropy_quantile: τ_H is this quantile of H in the response; inf for segments to the end of the turn.
        segment_length: Tokens of a fixed segment.
        segment_value: S, or d, of a segment: that of its anchor, or as a control the mean over its tokens.
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
    offsets = batch.token_offsets
    divergence = _divergence(batch, kl)
    thresholds = np.maximum(turn_quantiles(divergence, offsets, anchor_quantile), anchor_floor)
    may_anchor = divergence > batch.over_tokens(thresholds, "turn")
    if anchors == "random":
        may_anchor = _as_many_at_random(batch, may_anchor, divergence)
    if segments == "fixed":
        found = fixed_segments(may_anchor, segment_length, offsets)
    else:
        found = find_segments(may_anchor, _ends(batch, entropy_quantile), offsets)
    spread = found.with_anchor_values if segment_value == "anchor" else found.with_mean_values
    if weight == "log_ratio":
        weights = spread(batch.signals["teacher_logp"] - batch.logp)
        weights *= batch.over_tokens(np.sign(advantage), "trajectory")
        weights = bounded_exp(weights, epsilon)
    else:
        weights = spread(divergence)
        weights -= batch.over_tokens(turn_means(weights, offsets), "turn")
        weights *= c if weight == "magnitude" else batch.over_tokens(-np.sign(advantage) / temperature, "trajectory")
        weights = bounded_exp(weights, epsilon) if weight == "directional" else _clipped(1.0 + weights, epsilon)
    if mean_preserving:
        weights /= batch.over_tokens(turn_means(weights, offsets), "turn")
    diagnostics = _diagnostics(batch, found, weights)
    weights *= batch.over_tokens(advantage, "trajectory")
    return Credit(weights, "token", diagnostics=diagnostics)


def _divergence(batch: CreditBatch, kl: Divergence) -> Floats:
    """Return D of each token [K]."""
    if kl == "sampled":
        return batch.logp - batch.signals["teacher_logp"]
    return batch.signals[DIVERGENCE_SIGNALS[kl]]


def _ends(batch: CreditBatch, entropy_quantile: float) -> Bools:
    """Return which tokens end a segment [K], those with H at τ_H or above."""
    entropy = batch.signals["entropy"]
    return entropy >= batch.over_tokens(turn_quantiles(entropy, batch.token_offsets, entropy_quantile), "turn")


def _clipped(weights: Floats, epsilon: float) -> Floats:
    return np.clip(weights, 1.0 - epsilon, 1.0 + epsilon)


def _as_many_at_random(batch: CreditBatch, chosen: Bools, divergence: Floats) -> Bools:
    """Return tokens [K] drawn with the share of each turn's tokens that is chosen.

    The draw is a hash of the token's numbers and place in its rollout, so that it is the same in any order of rollouts.
    """
    share = sums_by(batch.turn_of_token, chosen, batch.n_turns) / np.maximum(batch.token_counts, 1)
    first = batch.token_offsets[batch.turn_offsets[:-1]]
    place = np.arange(batch.n_tokens) - batch.over_tokens(first, "trajectory")
    bits = np.zeros(batch.n_tokens, dtype=np.uint64)
    for numbers in (divergence, batch.logp, place.astype(np.float64)):
        bits = _scramble(bits ^ (numbers + 0.0).view(np.uint64))  # + 0.0 makes the two zeros one
    return (bits >> np.uint64(11)) * 2.0**-53 < batch.over_tokens(share, "turn")


def _scramble(bits: Any) -> Any:
    """Return well-mixed integers (the finaliser of SplitMix64)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _diagnostics(batch: CreditBatch, segments: Segments, weights: Floats) -> dict[str, Any]:
    """Count anchors and segments over the included rollouts."""
    kept = batch.over_tokens(batch.included, "trajectory")
    lengths = segments.lengths[kept[segments.anchors]]
    tokens = max(len(included_tokens(batch, weights)), 1)
    return {
        "anchors": len(lengths),
        "anchor_share": len(lengths) / tokens,
        "segment_length_mean": float(lengths.mean()) if lengths.size else 0.0,
        "segment_length_max": int(lengths.max(initial=0)),
        "segment_token_share": int(lengths.sum()) / tokens,
    } | weight_diagnostics(batch, weights)
