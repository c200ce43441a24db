"""Loop references of the methods with one advantage per turn that compare visits of a state."""

from __future__ import annotations

from fractions import Fraction

from references.rollout_level import grpo
from references.statistics import centre, returns_to_go, z_score
from references.world import World


def gigpo(
    world: World,
    gamma: float = 0.95,
    omega: float = 1.0,
    norm: str = "std",
    episode_norm: str = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    episode = grpo(world, ddof, eps, baseline_over, episode_norm)
    result = []
    for g, group in enumerate(world):
        visits: dict[int, list[tuple[int, int, Fraction]]] = {}
        for i, rollout in enumerate(group):
            if rollout.counts:
                to_go = returns_to_go(rollout.exact_rewards, Fraction(str(gamma)))
                for t, (state, value) in enumerate(zip(rollout.states, to_go, strict=True)):
                    visits.setdefault(state, []).append((i, t, value))
        step = {}
        for same in visits.values():
            values = [value for _, _, value in same]
            ones = [1] * len(values)
            scores = z_score(values, ones, ddof, eps) if norm == "std" else [float(d) for d in centre(values, ones)]
            step.update({(i, t): score for (i, t, _), score in zip(same, scores, strict=True)})
        result.append(
            [
                [episode[g][i] + omega * step.get((i, t), 0.0) for t in range(len(rollout.rewards))]
                for i, rollout in enumerate(group)
            ]
        )
    return result
