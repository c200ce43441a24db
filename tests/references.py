"""Slow, obvious credit methods, written from their formulas over plain lists, and random worlds to run them on.

Rewards are turned into exact fractions, so "all equal" means equal in the mathematician's sense. Nothing of the
package is used but the types that `build` fills.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from agentbench_credit.batch import CreditBatch
from agentbench_credit.trajectory import State, Trajectory, Turn

SIGNALS = ("entropy", "teacher_logp", "kl")


@dataclass
class Rollout:
    """One rollout as lists: a reward, a state and a list of tokens per turn."""

    rewards: list[float | None]
    states: list[int]
    tokens: list[list[dict[str, float]]]
    ending: State = "ended"
    invalid: list[bool] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        missing = any(reward is None or math.isnan(reward) for reward in self.rewards)
        return bool(self.rewards) and not missing and self.ending != "error"

    @property
    def exact_rewards(self) -> list[Fraction]:
        return [Fraction(str(reward)) for reward in self.rewards]


World = list[list[Rollout]]


def build(world: World, order: Sequence[tuple[int, int]] | None = None, **kwargs: Any) -> CreditBatch:
    """Make the batch of a world, its rollouts in the order of (group, member) pairs."""
    order = members(world) if order is None else order
    rollouts = [world[g][i] for g, i in order]
    signals = {
        name: [token[name] for rollout in rollouts for turn in rollout.tokens for token in turn] for name in SIGNALS
    }
    trajectories = [trajectory(f"task{g}", rollout) for (g, _), rollout in zip(order, rollouts, strict=True)]
    return CreditBatch.from_trajectories(trajectories, signals=signals, **kwargs)


def members(world: World) -> list[tuple[int, int]]:
    return [(g, i) for g, group in enumerate(world) for i in range(len(group))]


def trajectory(group_id: str, rollout: Rollout) -> Trajectory:
    invalid = rollout.invalid or [False] * len(rollout.rewards)
    turns = tuple(
        Turn(
            observation="",
            state_key=b"state %d" % state,
            admissible_actions=None,
            prompt_ids=np.zeros(1, np.int32),
            response_ids=np.zeros(len(tokens), np.int32),
            logprobs=np.array([token["logp"] for token in tokens], np.float32),
            finish_reason="stop",
            response="",
            action="up",
            action_valid=not bad,
            reward=reward,
        )
        for reward, state, tokens, bad in zip(rollout.rewards, rollout.states, rollout.tokens, invalid, strict=True)
    )
    return Trajectory("env-v0", {}, group_id, group_id, 0, "", {}, turns, b"", rollout.ending, False)


def flat(nested: Iterable[Any]) -> list[float]:
    """All numbers of nested lists, in order."""
    return [number for item in nested for number in (flat(item) if isinstance(item, list) else [item])]


# --- group statistics ------------------------------------------------------------------------------------------------


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


# --- methods ---------------------------------------------------------------------------------------------------------


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


def returns_to_go(rewards: Sequence[Fraction], gamma: Fraction) -> list[Fraction]:
    return [
        sum((gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))), Fraction(0)) for t in range(len(rewards))
    ]


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


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def clip(number: float, low: float, high: float) -> float:
    return min(max(number, low), high)


def bounded(exponent: float, epsilon: float) -> float:
    return clip(math.exp(min(exponent, 50.0)), 1 - epsilon, 1 + epsilon)


def gap(token: dict[str, float]) -> float:
    return token["teacher_logp"] - token["logp"]


def rlsd(world: World, mu: float = 0.5, epsilon: float = 0.2, progress: float = 0.0, **base: Any) -> list[Any]:
    """Advantage per group, rollout, turn and token."""
    now = mu * (1 - progress)
    return [
        [
            [
                [a * (1 - now + now * bounded(sign(a) * gap(token), epsilon)) for token in turn]
                for turn in rollout.tokens
            ]
            for a, rollout in zip(advantages, group, strict=True)
        ]
        for advantages, group in zip(grpo(world, **base), world, strict=True)
    ]


def quantile(values: Sequence[float], q: float) -> float:
    if q == math.inf:
        return math.inf
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def segment_anchors(may_anchor: Sequence[bool], ends: Sequence[bool]) -> list[int | None]:
    """For each token of one turn, the position of its segment's anchor, None outside a segment."""
    result: list[int | None] = []
    anchor: int | None = None
    for j, (opens, closes) in enumerate(zip(may_anchor, ends, strict=True)):
        if anchor is not None and closes:
            anchor = None
        if anchor is None and opens:
            anchor = j
        result.append(anchor)
    return result


def gear(
    world: World,
    weight: str = "directional",
    anchor_quantile: float = 0.9,
    anchor_floor: float = 0.05,
    entropy_quantile: float = 0.8,
    epsilon: float = 0.2,
    temperature: float = 1.0,
    c: float = 1.0,
    mean_preserving: bool = True,
    **base: Any,
) -> list[Any]:
    """Advantage per group, rollout, turn and token."""

    def turn_weights(turn: list[dict[str, float]], direction: int) -> list[float]:
        if not turn:
            return []
        divergence, entropy = [token["kl"] for token in turn], [token["entropy"] for token in turn]
        open_above = max(quantile(divergence, anchor_quantile), anchor_floor)
        close_from = quantile(entropy, entropy_quantile)
        anchors = segment_anchors([d > open_above for d in divergence], [h >= close_from for h in entropy])
        source = [j if anchor is None else anchor for j, anchor in enumerate(anchors)]
        strength = [divergence[s] for s in source]
        mean = math.fsum(strength) / len(turn)
        if weight == "directional":
            weights = [bounded(-direction * (s - mean) / temperature, epsilon) for s in strength]
        elif weight == "magnitude":
            weights = [clip(1 + c * (s - mean), 1 - epsilon, 1 + epsilon) for s in strength]
        else:
            weights = [bounded(direction * gap(turn[s]), epsilon) for s in source]
        if mean_preserving:
            average = math.fsum(weights) / len(turn)
            weights = [w / average for w in weights]
        return weights

    return [
        [
            [[a * w for w in turn_weights(turn, sign(a))] for turn in rollout.tokens]
            for a, rollout in zip(advantages, group, strict=True)
        ]
        for advantages, group in zip(grpo(world, **base), world, strict=True)
    ]


# --- random worlds ---------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Ragged worlds with repeated states, self-loops, ties, missing rewards, crashes and truncation."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    largest, longest = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    states, rewards = draw(st.integers(1, 6)), draw(st.sampled_from([[0.0], [0.0, 1.0], [-0.1, 0.1, 0.2, 0.3, 10.9]]))
    faults = draw(st.sampled_from([0.0, 0.1, 0.5]))
    return [
        [random_rollout(rng, rng.randint(1, longest), states, rewards, faults) for _ in range(rng.randint(1, largest))]
        for _ in range(draw(st.integers(1, 4)))
    ]


def random_rollout(rng: random.Random, turns: int, states: int, rewards: Sequence[float], faults: float) -> Rollout:
    """One rollout; with probability `faults` each, a reward is missing, it crashed, or it has no turn."""
    turns = 0 if rng.random() < faults / 4 else turns
    values: list[float | None] = [rng.choice(rewards) for _ in range(turns)]
    if turns and rng.random() < faults:
        values[rng.randrange(turns)] = rng.choice([None, math.nan])
    return Rollout(
        rewards=values,
        states=[rng.randrange(states) for _ in range(turns)],
        tokens=[[random_token(rng) for _ in range(rng.randint(0, 6))] for _ in range(turns)],
        ending="error" if rng.random() < faults / 2 else rng.choice(["ended", "truncated"]),
        invalid=[rng.random() < 0.3 for _ in range(turns)],
    )


def random_token(rng: random.Random) -> dict[str, float]:
    """Signals on a coarse grid, so that ties are common, with some extreme log-ratios."""
    return {
        "logp": -rng.choice([0.0, 0.5, 1.0, 2.5]),
        "teacher_logp": -rng.choice([0.0, 0.25, 0.5, 1.0, 900.0]),
        "kl": rng.choice([0.0, 0.0, 0.04, 0.06, 0.1, 0.5, 3.0]),
        "entropy": rng.choice([0.0, 0.1, 0.5, 1.0, 2.0]),
    }
