"""Loop references of the methods that follow the edges of the group's state graph, in exact fractions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from references.graph_values import Node, Visit, group_targets, group_visits, solve
from references.rollout_level import grpo
from references.statistics import z_score
from references.world import Rollout, World

Edge = tuple[int, Node]
"""A state and what follows it."""


def exact(number: float) -> Fraction:
    return Fraction(str(number))


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def scores(values: Sequence[Fraction], ddof: int, eps: float) -> list[float]:
    return z_score(values, [1] * len(values), ddof, eps)


def per_turn(group: Sequence[Rollout], values: dict[Visit, float]) -> list[list[float]]:
    """Lists per rollout and turn, 0 where there is no value."""
    return [[values.get((i, t), 0.0) for t in range(len(rollout.rewards))] for i, rollout in enumerate(group)]


def with_episode(
    world: World, terms: Sequence[dict[Visit, float]], omega: float, ddof: int, eps: float, baseline_over: str
) -> list[list[list[float]]]:
    """GRPO's advantage plus ω times each turn's own."""
    episode = grpo(world, ddof, eps, baseline_over)
    return [
        [[episode[g][i] + omega * value for value in turns] for i, turns in enumerate(per_turn(group, terms[g]))]
        for g, group in enumerate(world)
    ]


def sink_values(group: Sequence[Rollout], targets: dict[Visit, Node]) -> dict[Node, Fraction]:
    """The mean return of the rollouts that end in each sink."""
    returns: dict[Node, list[Fraction]] = {}
    for (i, t), target in targets.items():
        if t == len(group[i].rewards) - 1 and isinstance(target, tuple):
            returns.setdefault(target, []).append(sum(group[i].exact_rewards, Fraction(0)))
    return {sink: mean(values) for sink, values in returns.items()}


def node_values(group: Sequence[Rollout], targets: dict[Visit, Node], gamma: float) -> dict[Node, Fraction]:
    """V(u) = mean of γ V(v) over the visits, V of a sink its mean return."""
    sinks, nodes = sink_values(group, targets), list(group_visits(group))
    matrix = [[Fraction(int(u == v)) for v in nodes] for u in nodes]
    right = [Fraction(0) for _ in nodes]
    for row, node in enumerate(nodes):
        after = [targets[visit] for visit in group_visits(group)[node]]
        for target in after:
            if target in sinks:
                right[row] += exact(gamma) * sinks[target] / len(after)
            else:
                matrix[row][nodes.index(target)] -= exact(gamma) / len(after)
    return dict(zip(nodes, solve(matrix, right), strict=True)) | sinks


def walk_ends(edges: Sequence[Edge], start: Node, steps: int) -> Counter[Edge]:
    """How many walks of so many steps from a node end with each edge."""
    at = Counter({start: 1})
    for step in range(steps):
        ends: Counter[Edge] = Counter()
        for node, walks in at.items():
            for edge in edges:
                if edge[0] == node:
                    ends[edge] += walks
        if step == steps - 1:
            return ends
        at = Counter()
        for edge, walks in ends.items():
            at[edge[1]] += walks
    return Counter()


def graft(
    world: World,
    gamma: float = 0.95,
    gae_lambda: float = 0.95,
    hops: int = 10,
    truncation: str = "terminal",
    ddof: int = 1,
    eps: float = 1e-6,
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    result = []
    for group in world:
        visits, targets = group_visits(group), group_targets(group, truncation, 2)
        values = node_values(group, targets, gamma)
        edges = sorted({(u, targets[visit]) for u, same in visits.items() for visit in same}, key=str)
        residual = {(u, v): exact(gamma) * values[v] - values[u] for u, v in edges}
        ahead: dict[Node, Fraction] = {}
        for v in {v for _, v in edges}:
            ahead[v] = Fraction(0)
            for k in range(1, hops + 1):
                ends = walk_ends(edges, v, k)
                if ends:
                    total = sum((walks * residual[edge] for edge, walks in ends.items()), Fraction(0))
                    ahead[v] += (exact(gamma) * exact(gae_lambda)) ** k * total / sum(ends.values())
        advantage = {edge: residual[edge] + ahead[edge[1]] for edge in edges}
        score: dict[Edge, float] = {}
        for node in visits:
            leaving = [edge for edge in edges if edge[0] == node]
            if len(leaving) == 1:
                value = advantage[leaving[0]]
                score[leaving[0]] = math.copysign(1.0, value) if value else 0.0
            else:
                found = scores([advantage[edge] for edge in leaving], ddof, eps)
                score.update(zip(leaving, found, strict=True))
        of_visit = {visit: score[node, targets[visit]] for node, same in visits.items() for visit in same}
        result.append(per_turn(group, of_visit))
    return result


def distances_to_success(group: Sequence[Rollout], targets: dict[Visit, Node]) -> dict[Node, int]:
    """Length of the shortest way from each node that has one: shorten until nothing changes."""
    success = ("end", True)
    found: dict[Node, int] = {success: 0} if success in targets.values() else {}
    changed = True
    while changed:
        changed = False
        for (i, t), target in targets.items():
            node = group[i].states[t]
            if target in found and found[target] + 1 < found.get(node, math.inf):
                found[node], changed = found[target] + 1, True
    return found


def graphgpo(
    world: World,
    decay: float = 0.1,
    scale: float = 10.0,
    omega: float = 1.0,
    truncation: str = "terminal",
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    terms = []
    for group in world:
        targets = group_targets(group, truncation, 2)
        distances = distances_to_success(group, targets)
        term: dict[Visit, float] = {}
        if distances:
            unreachable = max(distances.values()) + 1
            for same in group_visits(group).values():
                steps = [distances.get(targets[visit], unreachable) for visit in same]
                values = [exact(scale) * exact(decay) ** (d + 1) for d in steps]
                term.update(zip(same, scores(values, ddof, eps), strict=True))
        terms.append(term)
    return with_episode(world, terms, omega, ddof, eps, baseline_over)


def g2po(
    world: World,
    gamma: float = 0.95,
    success_value: float = 10.0,
    failure_value: float = 0.0,
    omega: float = 1.0,
    truncation: str = "terminal",
    ddof: int = 1,
    eps: float = 1e-6,
    baseline_over: str = "trajectory",
) -> list[list[list[float]]]:
    """Advantage per group, rollout and turn."""
    terms = []
    for group in world:
        visits, targets = group_visits(group), group_targets(group, truncation, 2)
        value: dict[Node, Fraction] = {("end", True): exact(success_value), ("end", False): exact(failure_value)}
        for node, same in visits.items():
            value[node] = mean(
                [exact(gamma) ** (len(group[i].rewards) - t) * sum(group[i].exact_rewards) for i, t in same]
            )
        term: dict[Visit, float] = {}
        for same in visits.values():
            term.update(zip(same, scores([value[targets[visit]] for visit in same], ddof, eps), strict=True))
        gains = [value[target] - value[group[i].states[t]] for (i, t), target in targets.items()]
        for visit, score in zip(targets, scores(gains, ddof, eps), strict=True):
            term[visit] += score
        terms.append(term)
    return with_episode(world, terms, omega, ddof, eps, baseline_over)
