"""Group statistics and discounting over plain lists, in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def centre(values: Sequence[Fraction], weights: Sequence[int]) -> list[Fraction]:
    mean = sum((w * v for w, v in zip(weights, values, strict=True)), Fraction(0)) / sum(weights)
    return [v - mean for v in values]


def z_score(values: Sequence[Fraction], weights: Sequence[int], ddof: int, eps: float) -> list[float]:
    """(value − mean) / (std + eps); an item of weight w counts w times."""
    if len(set(values)) <= 1:
        return [0.0] * len(values)
    deviations = centre(values, weights)
    variance = sum(w * d * d for w, d in zip(weights, deviations, strict=True)) / (sum(weights) - ddof)
    return [float(d) / (math.sqrt(variance) + eps) for d in deviations]


def returns_to_go(rewards: Sequence[Fraction], gamma: Fraction) -> list[Fraction]:
    return [
        sum((gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))), Fraction(0)) for t in range(len(rewards))
    ]
