"""Loop references of self-distillation: which tokens count, and one token's divergence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from references.world import World


def taught_weights(world: World, taught: Sequence[Sequence[Sequence[bool]]]) -> list[Any]:
    """Weight per group, rollout, turn and token, from a flag per group, rollout and turn."""
    return [
        [
            [
                [1.0 if rollout.counts and flag else 0.0 for _ in turn]
                for flag, turn in zip(flags, rollout.tokens, strict=True)
            ]
            for flags, rollout in zip(group_flags, group, strict=True)
        ]
        for group_flags, group in zip(taught, world, strict=True)
    ]


def softmax(logits: Sequence[float], temperature: float) -> list[float]:
    powers = [math.exp((logit - max(logits)) / temperature) for logit in logits]
    return [power / math.fsum(powers) for power in powers]


def bucketed(p: Sequence[float], q: Sequence[float], top_k: int | None) -> tuple[list[float], list[float]]:
    """Both distributions over the likeliest `top_k` of the first, the rest in one."""
    if top_k is None or top_k >= len(p):
        return list(p), list(q)
    likeliest = sorted(range(len(p)), key=lambda v: -p[v])[:top_k]
    rest = [v for v in range(len(p)) if v not in likeliest]
    return (
        [p[v] for v in likeliest] + [math.fsum(p[v] for v in rest)],
        [q[v] for v in likeliest] + [math.fsum(q[v] for v in rest)],
    )


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def token_loss(
    student: Sequence[float],
    teacher: Sequence[float],
    *,
    temperature: float = 1.0,
    ratio: float = 1.0,
    top_k: int | None = None,
    token_clip: float | None = None,
    ratio_clip: float | None = None,
) -> float:
    """One token's loss, from the two rows of logits."""
    p, q = bucketed(softmax(student, temperature), softmax(teacher, temperature), top_k)
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    divergence = kl(p, middle) / 2 + kl(q, middle) / 2
    if token_clip is not None:
        divergence = min(divergence, token_clip)
    return divergence if ratio_clip is None else min(ratio, ratio_clip) * divergence
