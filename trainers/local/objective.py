"""The clipped policy gradient, as a sum over tokens whose weights are fixed beforehand.

Because the weights are fixed for a whole mini-batch, the sum may be cut into micro-batches in any way, as long as
tokens that share a ratio (a turn or a trajectory) stay together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from agentbench_credit.batch import CreditBatch, Floats, Ints
from agentbench_credit.credit.method import Ratio
from agentbench_credit.trainer import LossAggregation


class PolicyLoss(NamedTuple):
    """The loss of a micro-batch and what it is made of; each is a sum over tokens, so micro-batches add up."""

    loss: torch.Tensor
    """Weighted sum to minimise, a scalar with gradient."""
    clipped: torch.Tensor
    """Number of tokens whose advantage has no gradient because of clipping."""
    ratio: torch.Tensor
    """Sum of the importance ratios."""
    approx_kl: torch.Tensor
    """Sum of r − 1 − log r, an estimate of the divergence of the new from the behaviour policy, in nats."""
    reference_kl: torch.Tensor
    """Sum of the k3 estimates of the divergence from the reference, in nats; 0 without a reference."""


def token_weights(batch: CreditBatch, members: Ints, aggregation: LossAggregation, constant: int) -> Floats:
    """Return the weight of every token in the loss of one mini-batch.

    ``"token-mean"`` is the mean over all tokens, ``"sequence-mean"`` the mean over trajectories of the mean over their
    tokens (GRPO, 2402.03300), ``"constant"`` the sum over tokens divided by trajectories × constant (Dr. GRPO,
    2503.20783). Excluded trajectories and those without tokens count nowhere.

    Args:
        batch: The rollouts.
        members: Trajectories of the mini-batch.
        aggregation: How token losses become one number.
        constant: Tokens that a trajectory counts as with ``"constant"``.

    Returns:
        Weights [K], 0 outside the mini-batch and in excluded trajectories.
    """
    tokens = np.bincount(batch.trajectory_of_token, minlength=batch.n_trajectories)
    counted = np.zeros(batch.n_trajectories, dtype=bool)
    counted[members] = True
    counted &= batch.included & (tokens > 0)
    n_trajectories, n_tokens = int(counted.sum()), int(tokens[counted].sum())
    if not n_tokens:
        return np.zeros(batch.n_tokens)
    denominator = {
        "token-mean": np.full(batch.n_trajectories, n_tokens),
        "sequence-mean": n_trajectories * np.maximum(tokens, 1),
        "constant": np.full(batch.n_trajectories, n_trajectories * constant),
    }[aggregation]
    per_trajectory: Floats = counted / denominator
    return per_trajectory[batch.trajectory_of_token]


def ratio_segments(batch: CreditBatch, tokens: Ints, ratio: Ratio) -> Ints:
    """Return which tokens share an importance ratio.

    Args:
        batch: The rollouts.
        tokens: Tokens of a micro-batch [R].
        ratio: ``"token"``, ``"turn"`` or ``"sequence"`` (the whole trajectory).

    Returns:
        A number below R for each token [R]; equal numbers share a ratio.
    """
    owner = {"token": np.arange(batch.n_tokens), "turn": batch.turn_of_token, "sequence": batch.trajectory_of_token}
    return np.unique(owner[ratio][tokens], return_inverse=True)[1]


def policy_loss(
    logp: torch.Tensor,
    behaviour_logp: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    segments: torch.Tensor,
    reference_logp: torch.Tensor | None = None,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
    kl_coefficient: float,
) -> PolicyLoss:
    """Return Σ_j w_j (−min(r A, clip(r, 1 − low, 1 + high) A) + β k3_j) and its parts.

    r is exp of the mean of log π − log π_behaviour over the token's segment: the token itself (PPO, 1707.06347), or a
    turn or trajectory (the geometric mean of GSPO, 2507.18071). As in GSPO's token form, each token keeps the gradient
    r ∇log π of its own, which for equal advantages is the gradient of the geometric mean. Where A < 0 the loss is at
    most −dual_clip · A (dual clip, 1912.09729). k3 = e^d − d − 1 with d = log π_reference − log π.

    Args:
        logp: Log-probabilities [R] under the policy, with gradient.
        behaviour_logp: Log-probabilities [R] as sampled.
        advantages: Advantages [R].
        weights: See `token_weights` [R].
        segments: See `ratio_segments` [R].
        reference_logp: Log-probabilities [R] under the reference; None leaves the divergence out.
        clip_low: How far below 1 the ratio may move.
        clip_high: How far above 1.
        dual_clip: Bound on the ratio of tokens with negative advantage, above 1; None for no bound.
        kl_coefficient: β.

    Returns:
        Loss and sums over the tokens; exact zeros for no tokens.
    """
    delta = logp.detach() - behaviour_logp
    counts = torch.zeros_like(delta).index_add(0, segments, torch.ones_like(delta))
    sums = torch.zeros_like(delta).index_add(0, segments, delta)
    log_ratio = (sums / counts.clamp(min=1))[segments]
    # The last factor is 1; it carries the gradient.
    ratio = log_ratio.exp() * (logp - logp.detach()).exp()
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    if dual_clip is not None:
        surrogate = torch.where(advantages < 0, torch.maximum(surrogate, dual_clip * advantages), surrogate)
    terms, reference_kl = -surrogate, torch.zeros_like(logp)
    if reference_logp is not None:
        distance = reference_logp - logp
        reference_kl = distance.exp() - distance - 1
        terms = terms + kl_coefficient * reference_kl
    with torch.no_grad():
        outside = (advantages > 0) & (ratio > 1 + clip_high) | (advantages < 0) & (ratio < 1 - clip_low)
        if dual_clip is not None:
            outside |= (advantages < 0) & (ratio > dual_clip)
        approx_kl = ratio - 1 - log_ratio
    return PolicyLoss(
        (weights * terms).sum(), outside.sum(), ratio.detach().sum(), approx_kl.sum(), reference_kl.detach().sum()
    )
