"""Statistics of success: intervals that hold for small panels."""

from __future__ import annotations

from collections.abc import Sequence
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
    return _wilson(successes / trials, trials, confidence)


def _wilson(rate: float, trials: float, confidence: float) -> Interval:
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def clustered_interval(rates: Sequence[float], repeats: int, confidence: float = 0.95) -> Interval:
    """Return the interval of a success rate over tasks that were each tried several times.

    Tries of one task are alike, so the number of trials is not tasks × repeats. The Wilson score interval is taken at
    the number of independent trials that would vary as much as the tasks' rates do (Kish's effective sample size),
    between tasks and tasks × repeats; at the number of tasks where all tries ended alike.

    Args:
        rates: Share of solved tries of each task, at least one task.
        repeats: Tries of each task; with 1 this is `wilson_interval`.
        confidence: Coverage, between 0 and 1.

    Returns:
        The interval within [0, 1].

    Raises:
        ValueError: No task, or a rate outside [0, 1].
    """
    tasks = len(rates)
    if not tasks or not all(0 <= rate <= 1 for rate in rates):
        raise ValueError(f"rates of {tasks} tasks")
    rate = sum(rates) / tasks
    trials = float(tasks)
    if tasks > 1 and 0 < rate < 1:
        variance = sum((each - rate) ** 2 for each in rates) / (tasks - 1) / tasks
        most = float(tasks * repeats)
        trials = min(max(rate * (1 - rate) / variance, tasks), most) if variance > 0 else most
    return _wilson(rate, trials, confidence)
