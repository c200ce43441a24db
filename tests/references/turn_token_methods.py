"""Loop references of the methods that read turn rewards, entropy or a teacher."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from references.rollout_level import grpo
from references.statistics import z_score
from references.token_level import clip, gap, quantile, sign
from references.world import Rollout, World


def scores_of(group: Sequence[Rollout], values: Sequence[Fraction], ddof: int, eps: float, over: str) -> list[float]:
    """The group's z-scores of one value per rollout, 0 for rollouts that do not count."""
    counted = [i for i, rollout in enumerate(group) if rollout.counts]
    weights = [len(group[i].rewards) if over == "step" else 1 for i in counted]
    found = dict(zip(counted, z_score([values[i] for i in counted], weights, ddof, eps), strict=True))
    return [found.get(i, 0.0) for i in range(len(group))]


def mt_grpo(
    world: World, c: float = 1.0, ddof: int = 1, eps: float = 1e-6, baseline_over: str = "trajectory"
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    summed = grpo(world, ddof, eps, baseline_over)
    result = []
    for g, group in enumerate(world):
        rewards = [rollout.exact_rewards if rollout.counts else [] for rollout in group]
        outcomes = scores_of(group, [r[-1] if r else Fraction(0) for r in rewards], ddof, eps, baseline_over)
        turns = scores_of(group, [sum(r[:-1], Fraction(0)) for r in rewards], ddof, eps, baseline_over)
        advantages = []
        for i, rollout in enumerate(group):
            length = len(rollout.rewards)
            if not rollout.counts:
                advantages.append([0.0] * length)
            elif length == 1:
                advantages.append([summed[g][i]])
            else:
                advantages.append([outcomes[i] + (c * turns[i] if t == 0 else 0.0) for t in range(length)])
        result.append(advantages)
    return result


def empg(world: World, k: float = 1.0, k_next: float = 1.0, zeta: float = 0.05, **base: Any) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    entropies: dict[tuple[int, int, int], float] = {}
    for g, group in enumerate(world):
        for i, rollout in enumerate(group):
            for t, turn in enumerate(rollout.tokens):
                if rollout.counts and turn:
                    entropies[g, i, t] = math.fsum(token["entropy"] for token in turn) / len(turn)
    low, high = min(entropies.values(), default=0.0), max(entropies.values(), default=0.0)
    same = high - low <= 1e-12 * max(abs(high), abs(low))
    scaled = {turn: 0.0 if same else (h - low) / (high - low) for turn, h in entropies.items()}
    mean = math.fsum(math.exp(-k * h) for h in scaled.values()) / max(len(scaled), 1)
    advantages = grpo(world, **base)
    raw = {}
    for g, i, t in scaled:
        bonus = math.exp(-k_next * scaled[g, i, t + 1]) if (g, i, t + 1) in scaled else 0.0
        raw[g, i, t] = advantages[g][i] * math.exp(-k * scaled[g, i, t]) / mean + zeta * bonus
    centre = math.fsum(raw.values()) / max(len(raw), 1)
    return [
        [
            [raw[g, i, t] - centre if (g, i, t) in raw else 0.0 for t in range(len(rollout.rewards))]
            for i, rollout in enumerate(group)
        ]
        for g, group in enumerate(world)
    ]


def high_entropy(world: World, entropy_quantile: float = 0.8, **base: Any) -> list[Any]:
    """Advantage per group, rollout, turn and token."""
    counted = [r for group in world for r in group if r.counts]
    values = [token["entropy"] for rollout in counted for turn in rollout.tokens for token in turn]
    threshold = quantile(values, entropy_quantile) if values else 0.0
    return [
        [
            [[a if token["entropy"] >= threshold else 0.0 for token in turn] for turn in rollout.tokens]
            for a, rollout in zip(advantages, group, strict=True)
        ]
        for advantages, group in zip(grpo(world, **base), world, strict=True)
    ]


def crest(
    world: World,
    epsilon: float = 0.28,
    strength: float = 0.3,
    surprise: float = 0.5,
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[Any]:
    """Advantage per group, rollout, turn and token."""

    def weights(turn: list[dict[str, float]], direction: int) -> list[float]:
        surprises = z_score([Fraction(str(-token["logp"])) for token in turn], [1] * len(turn), ddof, eps)
        found = []
        for token, z in zip(turn, surprises, strict=True):
            agreement = direction * gap(token)
            w = clip(math.exp(min(agreement / 2, 50.0)), 1 - epsilon, 1 + epsilon)
            sigmoid = 1 / (1 + math.exp(-z))
            trust = clip((agreement > 0) * strength * (1 + surprise * (2 * sigmoid - 1)), 0.0, strength)
            found.append(1 + trust * (w - 1))
        return found

    return [
        [
            [[a * w for w in weights(turn, sign(a))] if turn else [] for turn in rollout.tokens]
            for a, rollout in zip(advantages, group, strict=True)
        ]
        for advantages, group in zip(grpo(world, ddof, eps, baseline_over), world, strict=True)
    ]
