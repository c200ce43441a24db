"""Loop references of the methods that read a value of each turn's state."""

from __future__ import annotations

from fractions import Fraction

from references.statistics import z_score
from references.world import Rollout, World


def gae_sums(rollout: Rollout, gamma: float, gae_lambda: float, truncation: str) -> list[Fraction]:
    """A_t = δ_t + γλ A_{t+1} of one rollout, from its end."""
    discount, trace = Fraction(str(gamma)), Fraction(str(gae_lambda))
    rewards, values = rollout.exact_rewards, [Fraction(str(value)) for value in rollout.values]
    bootstrap = truncation == "bootstrap" and rollout.ending == "truncated"
    following, advantage, sums = Fraction(str(rollout.final_value)) if bootstrap else Fraction(0), Fraction(0), []
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + discount * following - value + discount * trace * advantage
        following = value
        sums.insert(0, advantage)
    return sums


def gae(
    world: World,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    norm: str = "batch",
    truncation: str = "terminal",
    ddof: int = 1,
    eps: float = 1e-6,
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    counted = [rollout for group in world for rollout in group if rollout.counts]
    sums = {id(rollout): gae_sums(rollout, gamma, gae_lambda, truncation) for rollout in counted}
    together = [advantage for rollout in counted for advantage in sums[id(rollout)]]
    scores = iter(
        z_score(together, [1] * len(together), ddof, eps) if norm == "batch" else [float(a) for a in together]
    )
    return [
        [[next(scores) if rollout.counts else 0.0 for _ in rollout.rewards] for rollout in group] for group in world
    ]


def gae_targets(world: World, gamma: float, gae_lambda: float, truncation: str) -> list[list[list[float | None]]]:
    """What the critic should have predicted per group, rollout and turn; None in rollouts that do not count."""
    return [
        [
            [
                float(advantage + Fraction(str(value)))
                for advantage, value in zip(gae_sums(r, gamma, gae_lambda, truncation), r.values, strict=True)
            ]
            if r.counts
            else [None] * len(r.rewards)
            for r in group
        ]
        for group in world
    ]
