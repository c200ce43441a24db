"""What token-level methods share: statistics over the tokens of each turn, and bounded weights. Linear in tokens."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentbench_credit.batch import CreditBatch, Floats, Ints, Scalar
from agentbench_credit.credit.groups import ROUNDING
from agentbench_credit.credit.params import Ddof


def turn_reduce(ufunc: np.ufunc, values: Floats, token_offsets: Ints) -> Floats:
    """Return the reduction of each turn's tokens, as ``np.add`` or ``np.maximum`` do it [T]; 0 without tokens.

    Args:
        ufunc: A binary ufunc.
        values: One value per token [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].

    Returns:
        The reductions [T].
    """
    filled = np.diff(token_offsets) > 0
    result = np.zeros(len(filled))
    if filled.any():
        result[filled] = ufunc.reduceat(values, token_offsets[:-1][filled])
    return result


def turn_means(values: Floats, token_offsets: Ints) -> Floats:
    """Return the mean of each turn's tokens [T], 0 for a turn without tokens.

    Args:
        values: One value per token [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].

    Returns:
        The means [T].
    """
    return turn_reduce(np.add, values, token_offsets) / np.maximum(np.diff(token_offsets), 1)


def turn_z_scores(values: Floats, token_offsets: Ints, *, ddof: Ddof, eps: float) -> Floats:
    """Return (value − mean) / (std + eps) among the tokens of its turn [K]; 0 where those are all equal.

    Args:
        values: One value per token [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].
        ddof: 1 for the sample's standard deviation, 0 for the population's.
        eps: Added to the standard deviation.

    Returns:
        The scores [K].
    """
    counts = np.diff(token_offsets)
    highest, lowest = (turn_reduce(ufunc, values, token_offsets) for ufunc in (np.maximum, np.minimum))
    equal = highest - lowest <= ROUNDING * np.maximum(highest, -lowest)
    scores = values - np.repeat(turn_means(values, token_offsets), counts)
    variances = turn_reduce(np.add, scores * scores, token_offsets) / np.maximum(counts - ddof, 1)
    divisors = np.sqrt(variances) + eps
    divisors[equal | (divisors == 0.0)] = np.inf
    scores /= np.repeat(divisors, counts)
    return scores


def quantile_of(values: Floats, quantile: float) -> float:
    """Return a quantile by linear interpolation between the two nearest order statistics.

    With n values the quantile q lies at position q (n − 1) of the sorted values, counted from 0.

    Args:
        values: Numbers [n], n at least 1.
        quantile: 0 to 1.

    Returns:
        The quantile.
    """
    position = float(_positions(quantile, np.array(len(values))))
    below = int(position)
    above = min(below + 1, len(values) - 1)
    ordered = np.partition(values, [below, above])
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def _positions(quantile: float, counts: Ints) -> Floats:
    """Return the positions of a quantile in sorted values; a whole position stays whole."""
    return np.round(quantile * (counts - 1.0), 9)


def turn_quantiles(values: Floats, token_offsets: Ints, quantile: float) -> Floats:
    """Return a quantile of each turn's tokens [T], see `quantile_of`.

    Args:
        values: One value per token [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].
        quantile: 0 to 1, or infinity for thresholds that no value reaches.

    Returns:
        The quantiles [T]; infinity for a turn without tokens.
    """
    counts = np.diff(token_offsets)
    quantiles = np.full(len(counts), np.inf)
    filled = counts > 0
    if math.isinf(quantile) or not filled.any():
        return quantiles
    with np.errstate(over="ignore"):
        ordered: NDArray[Any] = values.astype(np.float32)  # sorts twice as fast, and models work in it
    if not np.array_equal(ordered, values):
        ordered = values.copy()
    bounds = token_offsets.tolist()
    for start, end in pairwise(bounds):  # a call for each turn costs less than gathering turns of one length
        ordered[start:end].sort()
    positions = _positions(quantile, counts[filled])
    below = positions.astype(np.int64)
    low = token_offsets[:-1][filled] + below
    high = np.minimum(low + 1, token_offsets[1:][filled] - 1)
    nearest, next_up = ordered[low].astype(np.float64), ordered[high].astype(np.float64)
    quantiles[filled] = nearest + (next_up - nearest) * (positions - below)
    return quantiles


def bounded_exp(exponent: Floats, epsilon: float) -> Floats:
    """Return clip(exp(x), 1 − ε, 1 + ε), without overflow.

    Args:
        exponent: Any finite numbers.
        epsilon: Half the width of the interval around 1, below 1.

    Returns:
        Weights of the same shape.
    """
    weights = np.clip(exponent, math.log1p(-epsilon), math.log1p(epsilon))
    np.exp(weights, out=weights)
    # Once more, so that rounding leaves the bounds where they are.
    return np.clip(weights, 1.0 - epsilon, 1.0 + epsilon, out=weights)


def included_tokens(batch: CreditBatch, values: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the values [K] of the tokens of included rollouts; the array itself if that is all of them."""
    return values if batch.included.all() else values[batch.over_tokens(batch.included, "trajectory")]


def weight_diagnostics(batch: CreditBatch, weights: Floats) -> dict[str, float]:
    """Return mean, smallest and largest token weight over the included rollouts; 1 if there is no token.

    Args:
        batch: The rollouts.
        weights: One weight per token [K].

    Returns:
        ``weight_mean``, ``weight_min``, ``weight_max``.
    """
    kept = included_tokens(batch, weights)
    if kept.size == 0:
        return {"weight_mean": 1.0, "weight_min": 1.0, "weight_max": 1.0}
    return {"weight_mean": float(kept.mean()), "weight_min": float(kept.min()), "weight_max": float(kept.max())}
