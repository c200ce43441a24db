"""Loop references of the methods that take values from the group's state graph, solved in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from references.rollout_level import grpo
from references.statistics import returns_to_go, z_score
from references.world import Rollout, World

Node = Any
"""A state's number, or ("end", success)."""
Visit = tuple[int, int]
"""Rollout and turn of a group."""


def end(rollout: Rollout, sinks: int) -> Node:
    return ("end", rollout.success if sinks == 2 else False)


def group_visits(group: Sequence[Rollout]) -> dict[int, list[Visit]]:
    """The visits of each state in the rollouts that count."""
    visits: dict[int, list[Visit]] = {}
    for i, rollout in enumerate(group):
        if rollout.counts:
            for t, state in enumerate(rollout.states):
                visits.setdefault(state, []).append((i, t))
    return visits


def group_targets(group: Sequence[Rollout], truncation: str, sinks: int) -> dict[Visit, Node]:
    """Where each turn leads."""
    visits = group_visits(group)
    targets: dict[Visit, Node] = {}
    for i, rollout in enumerate(group):
        if rollout.counts:
            stays = truncation == "bootstrap" and rollout.ending == "truncated" and rollout.final_state in visits
            last = rollout.final_state if stays else end(rollout, sinks)
            for t, target in enumerate([*rollout.states[1:], last]):
                targets[i, t] = target
    return targets


def solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Gauss-Jordan elimination.

    Raises:
        ZeroDivisionError: The matrix is singular.
    """
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            raise ZeroDivisionError("singular")
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k]:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def backup_values(
    group: Sequence[Rollout], gamma: float, truncation: str = "terminal", sink_value: float = 0.0
) -> dict[Node, Fraction]:
    """V of every visited state and of the sinks, from N(u) V(u) − Σ γ V(v) = Σ r."""
    visits, targets = group_visits(group), group_targets(group, truncation, 2)
    discount = Fraction(str(gamma))
    nodes = list(visits)
    sink = Fraction(str(sink_value))
    matrix = [[Fraction(0)] * len(nodes) for _ in nodes]
    right = [Fraction(0)] * len(nodes)
    for row, node in enumerate(nodes):
        for i, t in visits[node]:
            matrix[row][row] += 1
            right[row] += group[i].exact_rewards[t]
            target = targets[i, t]
            if target in visits:
                matrix[row][nodes.index(target)] -= discount
            else:
                right[row] += discount * sink
    values: dict[Node, Fraction] = dict(zip(nodes, solve(matrix, right), strict=True))
    return values | {("end", False): sink, ("end", True): sink}


def gae(residuals: Sequence[Fraction], gamma: float, gae_lambda: float) -> list[Fraction]:
    return returns_to_go(residuals, Fraction(str(gamma)) * Fraction(str(gae_lambda)))


def traces(
    group: Sequence[Rollout], values: dict[Node, Fraction], targets: dict[Visit, Node], gamma: float, gae_lambda: float
) -> dict[Visit, Fraction]:
    """GAE of r + γ V(next) − V(state) along each rollout that counts."""
    result = {}
    for i, rollout in enumerate(group):
        if rollout.counts:
            residuals = [
                reward + Fraction(str(gamma)) * values[targets[i, t]] - values[state]
                for t, (reward, state) in enumerate(zip(rollout.exact_rewards, rollout.states, strict=True))
            ]
            result.update({(i, t): a for t, a in enumerate(gae(residuals, gamma, gae_lambda))})
    return result


def standardised(values: dict[Any, Fraction], ddof: int, eps: float) -> dict[Any, float]:
    if not values:
        return {}
    return dict(zip(values, z_score(list(values.values()), [1] * len(values), ddof, eps), strict=True))


def gagpo(
    world: World,
    gamma: float = 0.95,
    gae_lambda: float = 0.8,
    norm: str = "group",
    episode_weight: float = 0.0,
    truncation: str = "terminal",
    ddof: int = 1,
    eps: float = 1e-6,
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    raw: dict[tuple[int, int, int], Fraction] = {}
    for g, group in enumerate(world):
        to_go = [returns_to_go(r.exact_rewards, Fraction(str(gamma))) if r.counts else [] for r in group]
        values: dict[Node, Fraction] = {("end", False): Fraction(0)}
        for state, visits in group_visits(group).items():
            values[state] = sum((to_go[i][t] for i, t in visits), Fraction(0)) / len(visits)
        targets = group_targets(group, truncation, 1)
        raw.update({(g, i, t): a for (i, t), a in traces(group, values, targets, gamma, gae_lambda).items()})
    if norm == "none":
        scores = {key: float(value) for key, value in raw.items()}
    elif norm == "batch":
        scores = standardised(raw, ddof, eps)
    else:
        scores = {}
        for g in range(len(world)):
            scores.update(standardised({key: value for key, value in raw.items() if key[0] == g}, ddof, eps))
    episode = grpo(world, ddof, eps)
    return [
        [
            [scores.get((g, i, t), 0.0) + episode_weight * episode[g][i] for t in range(len(rollout.rewards))]
            for i, rollout in enumerate(group)
        ]
        for g, group in enumerate(world)
    ]


def mixing_share(successors: Sequence[Node], node: Node, alpha: str, self_loops: bool) -> float:
    """f(u) from where the visits of a state lead."""
    counted = [target for target in successors if self_loops or target != node]
    kinds = set(counted)
    if alpha == "constant":
        return 1.0
    if alpha == "visits":
        return 1 - 1 / len(successors)
    if len(kinds) < 2:
        return 0.0
    if alpha == "successors":
        return 1 - 1 / len(kinds)
    shares = [counted.count(target) / len(counted) for target in kinds]
    return -sum(p * math.log(p) for p in shares) / math.log(len(kinds))


def bepo(
    world: World,
    gated: bool,
    gamma: float = 0.95,
    gae_lambda: float = 0.95,
    fusion: str = "convex",
    alpha: str = "constant",
    alpha_max: float = 0.5,
    norm: str = "group",
    sinks: int = 2,
    self_loops: bool = True,
    truncation: str = "terminal",
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    episode = grpo(world, ddof, eps, baseline_over)
    result = []
    for g, group in enumerate(world):
        visits, targets = group_visits(group), group_targets(group, truncation, sinks)
        raw = traces(group, backup_values(group, gamma, truncation), targets, gamma, gae_lambda)
        if norm == "group":
            backup = standardised(raw, ddof, eps)
        elif norm == "node":
            backup = {}
            for same in visits.values():
                backup.update(standardised({visit: raw[visit] for visit in same}, ddof, eps))
        else:
            backup = {visit: float(value) for visit, value in raw.items()}
        advantages = [[0.0] * len(rollout.rewards) for rollout in group]
        for node, same in visits.items():
            successors = [targets[visit] for visit in same]
            distinct = {target for target in successors if self_loops or target != node}
            weight = alpha_max * mixing_share(successors, node, alpha, self_loops)
            if gated and len(distinct) < 2:
                weight = 0.0
            for i, t in same:
                kept = 1.0 if fusion == "additive" else 1.0 - weight
                advantages[i][t] = kept * episode[g][i] + weight * backup[i, t]
        result.append(advantages)
    return result
