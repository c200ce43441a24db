"""Loop references of dr_grpo, reinforce_pp, hgpo, rtmc, ecpo and gaca, in exact fractions up to the last root."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from references.rollout_level import grpo
from references.statistics import centre, returns_to_go, z_score
from references.turn_level import gigpo
from references.world import Rollout, World

Visit = tuple[int, int]
"""Rollout and turn of a group."""


def exact(number: float) -> Fraction:
    return Fraction(str(number))


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def visits_by_key(group: Sequence[Rollout], keys: dict[Visit, Any]) -> dict[Any, list[Visit]]:
    """The visits that have a key, by key, in rollouts that count."""
    by_key: dict[Any, list[Visit]] = {}
    for i, rollout in enumerate(group):
        for t in range(len(rollout.rewards)):
            if rollout.counts and (i, t) in keys:
                by_key.setdefault(keys[i, t], []).append((i, t))
    return by_key


def group_returns_to_go(group: Sequence[Rollout], gamma: float) -> dict[Visit, Fraction]:
    return {
        (i, t): value
        for i, rollout in enumerate(group)
        if rollout.counts
        for t, value in enumerate(returns_to_go(rollout.exact_rewards, exact(gamma)))
    }


def per_turn(group: Sequence[Rollout], values: dict[Visit, float]) -> list[list[float]]:
    return [[values.get((i, t), 0.0) for t in range(len(rollout.rewards))] for i, rollout in enumerate(group)]


def dr_grpo(world: World, baseline_over: str = "trajectory") -> list[list[float]]:
    """Advantage per group and rollout."""
    return grpo(world, baseline_over=baseline_over, norm="none")


def reinforce_pp(
    world: World, ddof: int = 1, eps: float = 1e-6, baseline_over: str = "trajectory"
) -> list[list[float]]:
    """Advantage per group and rollout: every difference listed once, or once per turn, over the whole batch."""
    differences: dict[tuple[int, int], Fraction] = {}
    listed: list[Fraction] = []
    for g, group in enumerate(world):
        valid = [i for i, rollout in enumerate(group) if rollout.counts]
        if not valid:
            continue
        returns = [sum(group[i].exact_rewards, Fraction(0)) for i in valid]
        weights = [len(group[i].rewards) if baseline_over == "step" else 1 for i in valid]
        for i, weight, difference in zip(valid, weights, centre(returns, weights), strict=True):
            differences[g, i] = difference
            listed += [difference] * weight
    variance = sum(((d - mean(listed)) ** 2 for d in listed), Fraction(0)) / max(len(listed) - ddof, 1)
    divisor = math.sqrt(variance) + eps if variance else 1.0
    return [[float(differences.get((g, i), 0)) / divisor for i in range(len(group))] for g, group in enumerate(world)]


def hgpo(
    world: World,
    history: int = 2,
    alpha: float = 1.0,
    gamma: float = 0.95,
    episode: bool = False,
    ddof: int = 0,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    rollout_scores, rollout_differences = grpo(world, ddof, eps, baseline_over), dr_grpo(world, baseline_over)
    result = []
    for g, group in enumerate(world):
        to_go = group_returns_to_go(group, gamma)
        items: dict[Visit, list[tuple[float, float]]] = {visit: [] for visit in to_go}
        for i, t in to_go:
            if episode and rollout_differences[g][i] != 0:
                items[i, t].append((1.0, rollout_scores[g][i]))
        for k in range(1, history + 2):
            keys = {(i, t): tuple(group[i].states[t - k + 1 : t + 1]) for i, t in to_go if t >= k - 1}
            for visits in visits_by_key(group, keys).values():
                values = [to_go[visit] for visit in visits]
                scores = z_score(values, [1] * len(values), ddof, eps)
                for visit, value, score in zip(visits, values, scores, strict=True):
                    if value != mean(values):
                        items[visit].append(((k + 1) ** alpha, score))
        result.append(
            per_turn(
                group,
                {
                    visit: sum(w * score for w, score in found) / sum(w for w, _ in found)
                    for visit, found in items.items()
                    if found
                },
            )
        )
    return result


def rtmc(world: World, gamma: float = 0.99, n0: float = 2.0, success_return: float = 1.0) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    result = []
    for group in world:
        to_go = group_returns_to_go(group, gamma)
        valid = [rollout for rollout in group if rollout.counts]
        values: dict[Visit, float] = {}
        for i, t in to_go if len(valid) > 1 else []:
            rate = Fraction(sum(rollout.success for rollout in valid), len(valid)) * exact(success_return)
            same_state = [visit for visit in to_go if state_of(group, visit) == state_of(group, (i, t))]
            same_both = [visit for visit in same_state if action_of(group, visit) == action_of(group, (i, t))]
            q = mean([to_go[visit] for visit in same_both])
            if math.isinf(n0):
                values[i, t] = float(q - rate)
                continue
            total = sum((to_go[visit] for visit in same_state), Fraction(0)) + exact(n0) * rate
            values[i, t] = float(q - total / (len(same_state) + exact(n0)))
        result.append(per_turn(group, values))
    return result


def state_of(group: Sequence[Rollout], visit: Visit) -> int:
    return group[visit[0]].states[visit[1]]


def action_of(group: Sequence[Rollout], visit: Visit) -> int:
    return group[visit[0]].actions[visit[1]]


def ecpo(
    world: World,
    gamma: float = 0.95,
    omega: float = 1.0,
    kappa: float = 1.0,
    tau: float = 4.0,
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    episode = grpo(world, ddof, eps, baseline_over)
    result = []
    for g, group in enumerate(world):
        to_go = group_returns_to_go(group, gamma)
        values: dict[Visit, float] = {}
        for visits in visits_by_key(group, {visit: state_of(group, visit) for visit in to_go}).values():
            state_mean = mean([to_go[visit] for visit in visits])
            action_means, shrunk = {}, {}
            for visit in visits:
                same = [to_go[other] for other in visits if action_of(group, other) == action_of(group, visit)]
                action_means[visit] = mean(same)
                shrunk[visit] = (sum(same) + exact(kappa) * state_mean) / (len(same) + exact(kappa))
            scores = z_score([shrunk[visit] for visit in visits], [1] * len(visits), ddof, eps)
            between = float(mean([(action_means[visit] - state_mean) ** 2 for visit in visits]))
            within = float(mean([(to_go[visit] - action_means[visit]) ** 2 for visit in visits]))
            gate = math.tanh(len(visits) / tau) * between / (between + within + eps) if between else 0.0
            values |= {
                (i, t): episode[g][i] + omega * gate * score for (i, t), score in zip(visits, scores, strict=True)
            }
        result.append(per_turn(group, values))
    return result


def gaca(
    world: World,
    w0: float = 0.5,
    kappa: float = 0.5,
    gamma: float = 0.95,
    norm: str = "std",
    episode_norm: str = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    episode = grpo(world, ddof, eps, baseline_over, episode_norm)
    both = gigpo(world, gamma, 1.0, norm, episode_norm, ddof, eps, baseline_over)
    result = []
    for g, group in enumerate(world):
        surprise: dict[Visit, Fraction] = {}
        for i, rollout in enumerate(group):
            for t, tokens in enumerate(rollout.tokens):
                if rollout.counts and tokens:
                    surprise[i, t] = mean([-exact(token["logp"]) for token in tokens])
        scores = z_score(list(surprise.values()), [1] * len(surprise), ddof, eps)
        score = dict(zip(surprise, scores, strict=True))
        values = {}
        for i, rollout in enumerate(group):
            for t in range(len(rollout.rewards) if rollout.counts else 0):
                weight = w0
                if 0.0 < w0 < 1.0:
                    logit = math.log(w0 / (1.0 - w0)) + kappa * score.get((i, t), 0.0)
                    weight = 1.0 / (1.0 + math.exp(-logit))
                step = both[g][i][t] - episode[g][i]
                values[i, t] = 2.0 * ((1.0 - weight) * episode[g][i] + weight * step)
        result.append(per_turn(group, values))
    return result
