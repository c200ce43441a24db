"""Loop references of the methods with one advantage per rollout."""

from __future__ import annotations

from fractions import Fraction

from references.statistics import centre, z_score
from references.world import World


def grpo(
    world: World, ddof: int = 1, eps: float = 1e-6, baseline_over: str = "trajectory", norm: str = "std"
) -> list[list[float]]:
    """Advantage per group and rollout."""
    result = []
    for group in world:
        valid = [rollout for rollout in group if rollout.counts]
        returns = [sum(rollout.exact_rewards, Fraction(0)) for rollout in valid]
        weights = [len(rollout.rewards) if baseline_over == "step" else 1 for rollout in valid]
        if norm == "std":
            scores = z_score(returns, weights, ddof, eps)
        else:
            scores = [float(d) for d in centre(returns, weights)] if valid else []
        of_valid = iter(scores)
        result.append([next(of_valid) if rollout.counts else 0.0 for rollout in group])
    return result


def rloo(world: World, baseline_over: str = "trajectory") -> list[list[float]]:
    """Advantage per group and rollout."""
    result = []
    for group in world:
        advantages = []
        for rollout in group:
            others = [other for other in group if other.counts and other is not rollout]
            if not rollout.counts or not others:
                advantages.append(0.0)
                continue
            weights = [len(other.rewards) if baseline_over == "step" else 1 for other in others]
            total = sum(w * sum(other.exact_rewards) for w, other in zip(weights, others, strict=True))
            advantages.append(float(sum(rollout.exact_rewards) - total / Fraction(sum(weights))))
        result.append(advantages)
    return result
