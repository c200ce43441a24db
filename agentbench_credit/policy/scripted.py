"""Policies without a model: a random one and the environment's own expert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from agentbench_credit.policy.base import Request, Response, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def random_action(request: Request) -> str:
    """Return one admissible action, drawn uniformly by the request's seed; empty text if none is listed."""
    actions = request.admissible_actions
    return actions[int(np.random.default_rng(request.seed).integers(len(actions)))] if actions else ""


def expert_action(request: Request) -> str:
    """Return the solver's action; a random one where the solver has none, as in a lost state."""
    return request.env.expert_action() or random_action(request)


SCRIPTS = {"expert": expert_action, "random": random_action}
"""Scripts by the name that users give them."""


class ScriptedPolicy:
    """A policy whose response is a function of the request and its environment.

    Args:
        script: Returns the response's text.
        tokenizer: Encodes the responses, so that trajectories look like a model's.
        policy_id: Recorded in trajectories.
    """

    def __init__(self, script: Callable[[Request], str], tokenizer: PreTrainedTokenizerBase, policy_id: str) -> None:
        self.script, self.tokenizer, self.policy_id = script, tokenizer, policy_id
        self.max_length = 2**31

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Answer every request; the sampling parameters play no part, and every log-probability is 0."""
        del sampling
        texts = [self.script(request) for request in requests]
        ids = [np.asarray(self.tokenizer.encode(text, add_special_tokens=False), dtype=np.int32) for text in texts]
        return [Response(each, np.zeros(len(each), np.float32), "stop") for each in ids]
