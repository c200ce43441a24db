"""Loop references of the methods with one advantage per token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from references.rollout_level import grpo
from references.world import World


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
    position = round(q * (len(ordered) - 1), 9)  # 0.29 of 101 values is the 29th, not just before it
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


def fixed_anchors(may_anchor: Sequence[bool], length: int) -> list[int | None]:
    """The same for segments of a fixed length."""
    result: list[int | None] = []
    anchor: int | None = None
    for j, opens in enumerate(may_anchor):
        if anchor is not None and j - anchor >= length:
            anchor = None
        if anchor is None and opens:
            anchor = j
        result.append(anchor)
    return result


def spread(values: Sequence[float], anchors: Sequence[int | None], how: str) -> list[float]:
    """Each token's value: its own outside a segment, else the anchor's or the mean over the segment."""
    result = []
    for j, anchor in enumerate(anchors):
        inside = [values[i] for i, other in enumerate(anchors) if other == anchor]
        mean = math.fsum(inside) / len(inside)
        result.append(values[j] if anchor is None else values[anchor] if how == "anchor" else mean)
    return result


def gear(
    world: World,
    kl: str = "full",
    weight: str = "directional",
    anchor_quantile: float = 0.9,
    anchor_floor: float = 0.05,
    segments: str = "entropy",
    entropy_quantile: float = 0.8,
    segment_length: int = 16,
    segment_value: str = "anchor",
    epsilon: float = 0.2,
    temperature: float = 1.0,
    c: float = 1.0,
    mean_preserving: bool = True,
    **base: Any,
) -> list[Any]:
    """Advantage per group, rollout, turn and token."""

    def divergence_of(token: dict[str, float]) -> float:
        return {"full": token["kl"], "topk": token["kl_topk"], "sampled": -gap(token)}[kl]

    def turn_weights(turn: list[dict[str, float]], direction: int) -> list[float]:
        if not turn:
            return []
        divergence, entropy = [divergence_of(token) for token in turn], [token["entropy"] for token in turn]
        open_above = max(quantile(divergence, anchor_quantile), anchor_floor)
        close_from = quantile(entropy, entropy_quantile)
        opens, closes = [d > open_above for d in divergence], [h >= close_from for h in entropy]
        anchors = segment_anchors(opens, closes) if segments == "entropy" else fixed_anchors(opens, segment_length)
        strength = spread(divergence, anchors, segment_value)
        mean = math.fsum(strength) / len(turn)
        if weight == "directional":
            weights = [bounded(-direction * (s - mean) / temperature, epsilon) for s in strength]
        elif weight == "magnitude":
            weights = [clip(1 + c * (s - mean), 1 - epsilon, 1 + epsilon) for s in strength]
        else:
            weights = [bounded(direction * d, epsilon) for d in spread([*map(gap, turn)], anchors, segment_value)]
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
