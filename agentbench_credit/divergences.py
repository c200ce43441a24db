"""How next-token distributions differ, over a vocabulary too large to keep every token's logits at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

BLOCK_ELEMENTS = 2**20
"""Most logits that are worked on at once (4 MiB in float32), which bounds all temporaries."""

Side = tuple[Any, torch.Tensor]
"""A distribution for each row: an output embedding (a module), and hidden states [R, H] that it makes logits of."""


def over_vocabulary(
    measure: Callable[..., torch.Tensor],
    sides: Sequence[Side],
    *extras: torch.Tensor,
    temperature: float,
    head_elements: int,
) -> torch.Tensor:
    """Measure distributions over the vocabulary, a few rows at a time.

    The output embedding works on chunks of rows, `measure` on blocks of a chunk: the first is fast only on many rows,
    the second has temporaries. What a chunk keeps for its gradient is made again on the way back.

    Args:
        measure: Function of log-probabilities [B, V] in nats, float32, one for each side, and of B rows of each of the
            extras; returns [B, ...].
        sides: One or more distributions with R rows each; the output embedding runs in its own precision.
        *extras: More tensors with R rows.
        temperature: Divides the logits.
        head_elements: Most logits of all sides in memory at once, half of it where a gradient is wanted; one row more
            or less for each side.

    Returns:
        All that the measure returned [R, ...].
    """
    heads = [head for head, _ in sides]
    vocabulary = max(int(head.weight.shape[0]) for head in heads)
    rows = max(1, head_elements // (len(sides) * vocabulary * (1 + torch.is_grad_enabled())))
    block = max(1, BLOCK_ELEMENTS // vocabulary)

    def chunk(*tensors: torch.Tensor) -> torch.Tensor:
        logits = [head(hidden) for head, hidden in zip(heads, tensors, strict=False)]
        parts = []
        for blocks in zip(*(t.split(block) for t in (*logits, *tensors[len(heads) :])), strict=True):
            logp = [torch.log_softmax(b.float() / temperature, dim=-1) for b in blocks[: len(heads)]]
            parts.append(measure(*logp, *blocks[len(heads) :]))
        return torch.cat(parts)

    tensors = [*(hidden for _, hidden in sides), *extras]
    if len(tensors[0]) <= rows:
        return chunk(*tensors)
    chunks = zip(*(t.split(rows) for t in tensors), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([chunk(*parts) for parts in chunks])
    return torch.cat([checkpoint(chunk, *parts, use_reentrant=False, preserve_rng_state=False) for parts in chunks])


def entropy(logp: torch.Tensor) -> torch.Tensor:
    """Return H(p) of rows of log-probabilities [R, V], in nats [R]; no gradient."""
    return _expectation(logp, -logp)


def reverse_kl(p_logp: torch.Tensor, q_logp: torch.Tensor) -> torch.Tensor:
    """Return D(p‖q) of rows of log-probabilities [R, V], in nats [R], inf if q excludes what p allows; no gradient."""
    # Rounding must not make it negative.
    return _expectation(p_logp, p_logp - q_logp).clamp_(min=0.0)


@torch.no_grad()
def _expectation(logp: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return Σ_v p_v x_v; a token of probability 0 adds 0 whatever its value. Overwrites the values."""
    p = logp.exp()
    return values.masked_fill_(p == 0, 0.0).mul_(p).sum(-1)


def jsd(p_logp: torch.Tensor, q_logp: torch.Tensor) -> torch.Tensor:
    """Return the Jensen-Shannon divergence ½ D(p‖m) + ½ D(q‖m), m = (p + q)/2.

    Args:
        p_logp: Log-probabilities [R, V]; the gradient reaches them.
        q_logp: Log-probabilities [R, V]; no gradient reaches them.

    Returns:
        The divergence [R] in nats, between 0 and ln 2.
    """
    p, q = p_logp.exp(), q_logp.detach().exp()
    # The derivative by p is ½ ln(p/m) alone, since what the logarithms add cancels out. The smallest number in place of
    # 0 keeps 0 · ln 0 at 0.
    with torch.no_grad():
        tiny = torch.finfo(p.dtype).tiny
        middle = torch.add(p, q).div_(2).clamp_(min=tiny)
        p_term, q_term = (torch.div(x, middle).clamp_(min=tiny).log_() for x in (p, q))
        q_sum = q_term.mul_(q).sum(-1)
    return (((p * p_term).sum(-1) + q_sum) / 2).clamp(min=0.0, max=math.log(2.0))


def top_k_with_tail(p_logp: torch.Tensor, q_logp: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tell only p's likeliest tokens apart.

    Args:
        p_logp: Log-probabilities [R, V].
        q_logp: Log-probabilities [R, V].
        k: How many tokens.

    Returns:
        Both over those k tokens and one for all others together [R, k + 1]; as they are if the vocabulary has no more
        than k.
    """
    if k >= p_logp.shape[-1]:
        return p_logp, q_logp
    likeliest = p_logp.detach().topk(k, dim=-1).indices

    def bucketed(logp: torch.Tensor) -> torch.Tensor:
        # Not -inf: where all others are excluded too, the gradient of logsumexp would be NaN.
        lowest = torch.finfo(logp.dtype).min
        tail = logp.scatter(-1, likeliest, lowest).logsumexp(-1, keepdim=True)
        return torch.cat([logp.gather(-1, likeliest), tail.masked_fill(tail < lowest / 2, -math.inf)], dim=-1)

    return bucketed(p_logp), bucketed(q_logp)
