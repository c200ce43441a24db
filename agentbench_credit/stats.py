"""Statistics of success: intervals that hold for small panels."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a success rate (Wilson 1927; no continuity correction).

    Args:
        successes: Number of successes.
        trials: Number of independent trials, at least 1.
        confidence: Coverage, between 0 and 1.

    Returns:
        The interval within [0, 1].

    Raises:
        ValueError: Fewer than 1 trial, or successes outside 0..trials.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate, spread = successes / trials, z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))
