"""Drawing tokens: one random stream for each response, temperature, top-k and top-p."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from agentbench_credit.errors import ModelError

if TYPE_CHECKING:
    from agentbench_credit.policy.base import Sampling


def uniforms(seed: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a response's random numbers [n] in [0, 1), one for each token."""
    return np.random.Generator(np.random.Philox(seed)).random(n)


def draw(logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: [B, V].
        uniform: [B], in [0, 1).
        sampling: Temperature, top_k, top_p.

    Returns:
        Tokens [B] and their log-probabilities [B] under the distribution drawn from.

    Raises:
        ModelError: Logits that are not finite.
    """
    if not bool(torch.isfinite(logits).all()):
        raise ModelError("the model's logits are not finite", mend="its weights are broken; load an earlier checkpoint")
    if sampling.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros(len(token), device=logits.device)
    logp = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if not sampling.is_full_softmax:
        logp = _restrict(logp, sampling)
    cumulative = logp.double().exp().cumsum(-1)
    token = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    return token, logp.gather(1, token[:, None]).squeeze(1)


def _restrict(logp: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Keep the top_k tokens of each row [B, V], then the top_p of those, and renormalise."""
    ordered, order = logp.sort(-1, descending=True)
    if sampling.top_k:
        ordered[:, sampling.top_k :] = -torch.inf
    probs = ordered.softmax(-1)
    dropped = (probs.cumsum(-1) - probs >= sampling.top_p) | (probs == 0)
    dropped[:, 0] = False
    hidden = torch.zeros_like(dropped).scatter(1, order, dropped)
    return torch.log_softmax(logp.masked_fill(hidden, -torch.inf), dim=-1)
