"""Loop reference of the method that reads the values of fresh rollouts."""

from __future__ import annotations

from fractions import Fraction

from references.world import World


def vineppo(world: World, gamma: float = 1.0) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    result = []
    for group in world:
        advantages = []
        for rollout in group:
            if not rollout.counts:
                advantages.append([0.0] * len(rollout.rewards))
                continue
            values = [Fraction(str(value)) for value in rollout.rollout_values]
            values.append(Fraction(0))  # after the last turn, however the rollout ended
            advantages.append(
                [
                    float(reward + Fraction(str(gamma)) * values[t + 1] - values[t])
                    for t, reward in enumerate(rollout.exact_rewards)
                ]
            )
        result.append(advantages)
    return result
