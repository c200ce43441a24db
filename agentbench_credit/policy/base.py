"""The policy protocol: token ids in; token ids, log-probabilities and finish reasons out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agentbench_credit.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

    from agentbench_credit.env import AgentEnv
    from agentbench_credit.trajectory import FinishReason, Ids


Message = dict[str, str]
"""A chat message: role and content."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; recorded in every trajectory and result."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""
    top_p: float = 1.0
    """Keep the smallest set of tokens with this probability mass; 1 keeps all."""
    top_k: int = 0
    """Keep this many most likely tokens; 0 keeps all."""
    max_new_tokens: int = 64
    """Longest response of one turn."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges.

        Raises:
            ConfigError: A value is out of range.
        """
        if not (self.temperature >= 0 and 0 < self.top_p <= 1 and self.top_k >= 0 and self.max_new_tokens > 0):
            mend = "temperature >= 0, 0 < top_p <= 1, top_k >= 0, max_new_tokens > 0"
            raise ConfigError(f"sampling parameters out of range: {self}", mend=mend)

    @property
    def is_full_softmax(self) -> bool:
        """Whether the sampling distribution is the whole softmax, as training needs."""
        return self.temperature > 0 and self.top_p == 1 and self.top_k == 0


@dataclass(frozen=True, eq=False)
class Request:
    """One response to generate."""

    prompt_ids: Ids
    """Token ids [P] of the prompt."""
    seed: int
    """Seed of this response; with the same prompt and sampling it gives the same response in any batch."""
    env: AgentEnv
    """The environment that asks; only scripted policies look at it."""
    messages: Callable[[], list[Message]]
    """Makes the same prompt as chat messages, for servers that render them."""
    admissible_actions: tuple[str, ...] | None = None
    """What the environment would accept; only scripted policies look at it."""
    continues: bool = False
    """Whether a later prompt is likely to begin with this one and its response, so that keeping them cached pays."""


@dataclass(frozen=True, eq=False)
class Response:
    """One generated response."""

    ids: Ids
    """Token ids [R] as sampled, the end-of-turn token included."""
    logprobs: NDArray[np.float32]
    """Log-probabilities [R] under the distribution that was sampled from."""
    finish_reason: FinishReason
    """``stop`` at an end-of-turn token, ``length`` at the limit."""


Answer = tuple[Request, Response | Exception | None]
"""A request with its response; None where the prompt leaves no room for one; an exception where it fails alone."""


class Stream(Protocol):
    """Requests under way, each answered on its own: none waits for the others of its turn."""

    def add(self, request: Request) -> None:
        """Take one more request."""
        ...

    def collect(self) -> list[Answer]:
        """Work until at least one request is answered; empty if none is under way.

        Raises:
            ModelError: The model is broken, so that no request could be answered.
        """
        ...

    def close(self) -> None:
        """Give up what is under way and free what it holds."""
        ...


class Policy(Protocol):
    """Anything that answers prompts."""

    policy_id: str
    """Model and checkpoint, recorded in trajectories."""
    tokenizer: PreTrainedTokenizerBase
    """The tokenizer of its ids, with a chat template."""
    max_length: int
    """Longest prompt and response together, in tokens."""

    def stream(self, sampling: Sampling) -> Stream:
        """Begin to answer requests; a response depends on its request and the sampling parameters only."""
        ...


def generate(policy: Policy, requests: Sequence[Request], sampling: Sampling) -> list[Response | None]:
    """Answer requests and nothing else.

    Args:
        policy: Answers them.
        requests: What is asked.
        sampling: How tokens are drawn.

    Returns:
        Responses in order; None where a prompt leaves no room for one.

    Raises:
        Exception: What an answer raised.
    """
    answers: dict[int, Response | None] = {}
    with closing(policy.stream(sampling)) as stream:
        for request in requests:
            stream.add(request)
        while len(answers) < len(requests):
            for request, answer in stream.collect():
                if isinstance(answer, Exception):
                    raise answer
                answers[id(request)] = answer
    return [answers[id(request)] for request in requests]
