"""What happened: turns and trajectories, with token ids exactly as sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

SCHEMA_VERSION = 1
"""Version of the stored layout; raised whenever a field changes meaning, appears or goes."""

Ids = NDArray[np.int32]
FinishReason = Literal["stop", "length", "error"]
State = Literal["ended", "truncated", "error"]


@dataclass(frozen=True, eq=False)
class Turn:
    """One observation, the response to it, and what came of it."""

    observation: str
    """What the policy saw."""
    state_key: bytes
    """Key of the state before the action."""
    admissible_actions: tuple[str, ...] | None
    """Actions the environment would have accepted, None if it cannot list them."""
    prompt_ids: Ids
    """Token ids [P] fed to the policy, as fed."""
    response_ids: Ids
    """Token ids [R] that the policy sampled, its end-of-turn token included; never decoded and re-encoded."""
    logprobs: NDArray[np.float32]
    """Log-probabilities [R] of the response ids under the sampling distribution, in nats."""
    finish_reason: FinishReason
    """Why generation stopped."""
    response: str
    """The response as text, for people and parsers only."""
    action: str
    """The action parsed from the response and sent to the environment."""
    action_valid: bool
    """Whether the environment accepted the action."""
    reward: float | None
    """Reward of this turn, None if the environment gave none."""
    teacher_prompt_ids: Ids | None = None
    """Token ids of the same prompt with the reference in it, None without a teacher or a reference."""
    info: dict[str, Any] = field(default_factory=dict)
    """Anything else, JSON-compatible."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One rollout of one task."""

    env_id: str
    """Versioned Gymnasium id."""
    env_kwargs: dict[str, Any]
    """Constructor arguments of the environment, JSON-compatible."""
    task_id: str
    """Task within the environment's panel."""
    group_id: str
    """Rollouts with one group id start from the identical state and are compared with each other."""
    seed: int
    """Seed of this rollout's sampling."""
    policy_id: str
    """Which policy acted: model and checkpoint."""
    sampling: dict[str, Any]
    """Sampling parameters: temperature, top_p, top_k, max_new_tokens."""
    turns: tuple[Turn, ...]
    """The turns in order."""
    final_state_key: bytes
    """Key of the state after the last turn."""
    state: State
    """``ended`` by the task, ``truncated`` by a limit, or ``error``."""
    success: bool
    """Whether the task was solved; False for every error."""
    reference: str | None = None
    """Ground truth at the start, None if there is none."""
    error: str | None = None
    """The error's text if the state is ``error``."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds by part: ``generate``, ``environment``."""
    schema_version: int = SCHEMA_VERSION
    """Layout version."""

    @property
    def n_tokens(self) -> int:
        """Number of sampled tokens over all turns."""
        return sum(len(turn.response_ids) for turn in self.turns)

    @property
    def reward(self) -> float | None:
        """Undiscounted sum of the turns' rewards; None if any is missing or there is no turn."""
        rewards = [turn.reward for turn in self.turns]
        known = [reward for reward in rewards if reward is not None]
        return sum(known) if rewards and len(known) == len(rewards) else None
