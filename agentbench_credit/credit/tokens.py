"""What token-level methods share: statistics over the tokens of each turn, and bounded weights. Linear in tokens."""

from __future__ import annotations

import math

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats, Ints


def turn_means(values: Floats, token_offsets: Ints) -> Floats:
    """Return the mean of each turn's tokens [T], 0 for a turn without tokens.

    Args:
        values: One value per token [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].

    Returns:
        The means [T].
    """
    counts = np.diff(token_offsets)
    filled = counts > 0
    means = np.zeros(len(counts))
    if filled.any():
        means[filled] = np.add.reduceat(values, token_offsets[:-1][filled]) / counts[filled]
    return means


def turn_quantiles(values: Floats, token_offsets: Ints, quantile: float) -> Floats:
    """Return a quantile of each turn's tokens [T], by linear interpolation between the two nearest order statistics.

    With n tokens the quantile q lies at position q (n − 1) of the sorted values, counted from 0.

    Args:
        values: One value per token [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].
        quantile: 0 to 1, or infinity for thresholds that no value reaches.

    Returns:
        The quantiles [T]; infinity for a turn without tokens.
    """
    counts = np.diff(token_offsets)
    quantiles = np.full(len(counts), np.inf)
    if math.isinf(quantile):
        return quantiles
    by_length = np.argsort(counts, kind="stable")
    lengths, starts = np.unique(counts[by_length], return_index=True)
    for length, turns in zip(lengths.tolist(), np.split(by_length, starts[1:]), strict=False):
        if length == 0:
            continue
        rows = values[token_offsets[turns][:, None] + np.arange(length)]
        position = quantile * (length - 1)
        below = math.floor(position)
        rows.partition(below, axis=1)
        low = rows[:, below]
        high = rows[:, below + 1 :].min(axis=1) if below + 1 < length else low
        quantiles[turns] = low + (high - low) * (position - below)
    return quantiles


def bounded_exp(exponent: Floats, epsilon: float) -> Floats:
    """Return clip(exp(x), 1 − ε, 1 + ε), without overflow.

    Args:
        exponent: Any finite numbers.
        epsilon: Half the width of the interval around 1.

    Returns:
        Weights of the same shape.
    """
    weights = np.minimum(exponent, 700.0)  # e^700 is finite and beyond any bound
    np.exp(weights, out=weights)
    return np.clip(weights, 1.0 - epsilon, 1.0 + epsilon, out=weights)


def weight_diagnostics(batch: CreditBatch, weights: Floats) -> dict[str, float]:
    """Return mean, smallest and largest token weight over the included rollouts; 1 if there is no token.

    Args:
        batch: The rollouts.
        weights: One weight per token [K].

    Returns:
        ``weight_mean``, ``weight_min``, ``weight_max``.
    """
    kept = weights if batch.included.all() else weights[batch.over_tokens(batch.included, "trajectory")]
    if kept.size == 0:
        return {"weight_mean": 1.0, "weight_min": 1.0, "weight_max": 1.0}
    return {"weight_mean": float(kept.mean()), "weight_min": float(kept.min()), "weight_max": float(kept.max())}
