"""Slow, obvious credit methods, written from their formulas over plain lists, and random worlds to run them on.

Rewards are turned into exact fractions, so "all equal" means equal in the mathematician's sense. Nothing of the
package is used but the types that `build` fills.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from agentbench_credit.batch import CreditBatch
from agentbench_credit.trajectory import State, Trajectory, Turn

TOKEN_SIGNALS = ("entropy", "teacher_logp", "kl", "kl_topk")


@dataclass
class Rollout:
    """One rollout as lists: a reward, a state, an action, a list of tokens and two values per turn."""

    rewards: list[float | None]
    states: list[int]
    tokens: list[list[dict[str, float]]]
    ending: State = "ended"
    invalid: list[bool] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    success: bool = False
    final_state: int = -1
    values: list[float] = field(default_factory=list)
    rollout_values: list[float] = field(default_factory=list)
    final_value: float = 0.0

    def __post_init__(self) -> None:
        turns = len(self.rewards)
        self.invalid = self.invalid or [False] * turns
        self.actions = self.actions or [0] * turns
        self.values = self.values or [0.0] * turns
        self.rollout_values = self.rollout_values or [0.0] * turns

    @property
    def counts(self) -> bool:
        missing = any(reward is None or math.isnan(reward) for reward in self.rewards)
        return bool(self.rewards) and not missing and self.ending != "error"

    @property
    def exact_rewards(self) -> list[Fraction]:
        return [Fraction(str(reward)) for reward in self.rewards]


World = list[list[Rollout]]


def build(world: World, order: Sequence[tuple[int, int]] | None = None, **kwargs: Any) -> CreditBatch:
    """Make the batch of a world, its rollouts in the order of (group, member) pairs."""
    order = members(world) if order is None else order
    rollouts = [world[g][i] for g, i in order]
    signals = {
        name: [token.get(name, 0.0) for rollout in rollouts for turn in rollout.tokens for token in turn]
        for name in TOKEN_SIGNALS
    }
    signals["values"] = [value for rollout in rollouts for value in rollout.values]
    signals["rollout_values"] = [value for rollout in rollouts for value in rollout.rollout_values]
    signals["final_values"] = [rollout.final_value for rollout in rollouts]
    trajectories = [trajectory(f"task{g}", rollout) for (g, _), rollout in zip(order, rollouts, strict=True)]
    return CreditBatch.from_trajectories(trajectories, signals=signals, **kwargs)


def members(world: World) -> list[tuple[int, int]]:
    return [(g, i) for g, group in enumerate(world) for i in range(len(group))]


def trajectory(group_id: str, rollout: Rollout) -> Trajectory:
    turns = tuple(
        Turn(
            observation="",
            state_key=b"state %d" % state,
            admissible_actions=None,
            prompt_ids=np.zeros(1, np.int32),
            response_ids=np.zeros(len(tokens), np.int32),
            logprobs=np.array([token["logp"] for token in tokens], np.float32),
            finish_reason="stop",
            response="",
            action=f"action {action}",
            action_valid=not bad,
            reward=reward,
        )
        for reward, state, action, tokens, bad in zip(
            rollout.rewards, rollout.states, rollout.actions, rollout.tokens, rollout.invalid, strict=True
        )
    )
    return Trajectory(
        env_id="env-v0",
        env_kwargs={},
        task_id=group_id,
        group_id=group_id,
        seed=0,
        policy_id="",
        sampling={},
        turns=turns,
        final_state_key=b"state %d" % rollout.final_state,
        state=rollout.ending,
        success=rollout.success,
    )


def flat(nested: Iterable[Any]) -> list[float]:
    """All numbers of nested lists, in order."""
    return [number for item in nested for number in (flat(item) if isinstance(item, list) else [item])]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Ragged worlds with repeated states, self-loops, ties, missing rewards, crashes and truncation."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    largest, longest = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    states, rewards = draw(st.integers(1, 6)), draw(st.sampled_from([[0.0], [0.0, 1.0], [-0.1, 0.1, 0.2, 0.3, 10.9]]))
    faults = draw(st.sampled_from([0.0, 0.1, 0.5]))
    return [
        [random_rollout(rng, rng.randint(1, longest), states, rewards, faults) for _ in range(rng.randint(1, largest))]
        for _ in range(draw(st.integers(1, 4)))
    ]


def random_rollout(rng: random.Random, turns: int, states: int, rewards: Sequence[float], faults: float) -> Rollout:
    """One rollout; with probability `faults` each, a reward is missing, it crashed, or it has no turn."""
    turns = 0 if rng.random() < faults / 4 else turns
    values: list[float | None] = [rng.choice(rewards) for _ in range(turns)]
    if turns and rng.random() < faults:
        values[rng.randrange(turns)] = rng.choice([None, math.nan])
    return Rollout(
        rewards=values,
        states=[rng.randrange(states) for _ in range(turns)],
        tokens=[[random_token(rng) for _ in range(rng.randint(0, 6))] for _ in range(turns)],
        ending="error" if rng.random() < faults / 2 else rng.choice(["ended", "truncated"]),
        invalid=[rng.random() < 0.3 for _ in range(turns)],
        actions=[rng.randrange(3) for _ in range(turns)],
        success=rng.random() < 0.5,
        final_state=rng.randrange(states + 1),
        values=[rng.choice([0.0, 0.5, 3.0, -1.0]) for _ in range(turns)],
        rollout_values=[rng.choice([0.0, 0.25, 1.0, 10.0]) for _ in range(turns)],
        final_value=rng.choice([0.0, 2.0]),
    )


def random_token(rng: random.Random) -> dict[str, float]:
    """Signals on a coarse grid, so that ties are common, with some extreme log-ratios."""
    return {
        "logp": -rng.choice([0.0, 0.5, 1.0, 2.5]),
        "teacher_logp": -rng.choice([0.0, 0.25, 0.5, 1.0, 900.0]),
        "kl": rng.choice([0.0, 0.0, 0.04, 0.06, 0.1, 0.5, 3.0]),
        "kl_topk": rng.choice([0.0, 0.0, 0.05, 0.2, 2.0]),
        "entropy": rng.choice([0.0, 0.1, 0.5, 1.0, 2.0]),
    }
