"""Policies without a model: a random one and the environment's own expert."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from agentbench_credit.policy.base import Answer, Request, Response, Sampling

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

    def stream(self, sampling: Sampling) -> ScriptedStream:
        """Begin to answer; the sampling parameters play no part, and every log-probability is 0."""
        del sampling
        return ScriptedStream(self)


class ScriptedStream:
    """Answers all requests whenever it is asked to.

    Args:
        policy: Whose script it is.
    """

    def __init__(self, policy: ScriptedPolicy) -> None:
        self._policy = policy
        self._open: list[Request] = []

    def add(self, request: Request) -> None:
        """Take one more request."""
        self._open.append(request)

    def collect(self) -> list[Answer]:
        """Answer everything; a script that raises fails for its request only."""
        taken, self._open = self._open, []
        return [(request, self._answer(request)) for request in taken]

    def _answer(self, request: Request) -> Response | Exception:
        try:
            text = self._policy.script(request)
        except Exception as error:  # handed to the rollout it belongs to
            return error
        ids = np.asarray(self._policy.tokenizer.encode(text, add_special_tokens=False), dtype=np.int32)
        return Response(ids, np.zeros(len(ids), np.float32), "stop")

    def close(self) -> None:
        """Give up what is under way."""
        self._open.clear()
