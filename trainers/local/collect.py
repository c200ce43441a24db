"""What an update learns from: its rollouts, and every signal that the credit method reads from them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agentbench_credit.batch import SIGNAL_LEVELS, CreditBatch, Floats
from agentbench_credit.branching import rollout_values
from agentbench_credit.credit.method import CreditMethod
from agentbench_credit.env import AgentEnv
from agentbench_credit.errors import TrainingError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.policy.transformers import TransformersPolicy
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.signals import compute_signals
from agentbench_credit.teacher import with_feedback, with_shuffled_references
from agentbench_credit.trainer import RewardRule, SignalSources
from agentbench_credit.trainers.local.critic import Critic
from agentbench_credit.trajectory import Trajectory

FEW_TAUGHT = 0.5
"""Below this share of turns with a reference, a method that learns from a teacher is mostly another method."""


class Clock:
    """Seconds by part of an update."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time a block; blocks of one name add up."""
        began = time.perf_counter()
        yield
        self.seconds[f"seconds_{part}"] = self.seconds.get(f"seconds_{part}", 0.0) + time.perf_counter() - began


@dataclass(eq=False)
class Collector:
    """Plays the rollouts of an update and computes what its credit method reads."""

    policy: TransformersPolicy
    """Plays, and is the student."""
    make_env: Callable[[], AgentEnv]
    """Builds one environment."""
    method: CreditMethod
    """Says what it reads."""
    params: Mapping[str, Any]
    """The method's parameters."""
    rewards: RewardRule
    """What counts as reward."""
    sources: SignalSources
    """Where signals beyond the rollouts come from."""
    prompter: Prompter
    """Renders prompts."""
    sampling: Sampling
    """How rollouts are sampled."""
    batch_tokens: int
    """Most tokens of a forward pass."""
    parallel: int
    """Episodes under way at once."""
    critic: Critic | None = None
    """Gives the signal ``values``."""
    costs: dict[str, float] = field(default_factory=dict)
    """What the last update's signals took beyond its own rollouts, by name."""

    def collect(
        self, number: int, starts: Sequence[Start], share_done: float, clock: Clock
    ) -> tuple[list[Trajectory], CreditBatch]:
        """Play an update's rollouts.

        Args:
            number: Number of the update.
            starts: What to play.
            share_done: Share of the training budget spent.
            clock: Times the parts.

        Returns:
            The rollouts, with the rewards that count, and the batch made from them.

        Raises:
            TrainingError: Not one rollout has a valid reward.
        """
        own_reference = self.method.teacher == "reference" and self.sources.references == "own"
        with clock("rollout"):
            trajectories = rollout(
                self.policy,
                self.make_env,
                starts,
                prompter=self.prompter,
                sampling=self.sampling,
                parallel=self.parallel,
                with_reference=own_reference,
                label=f"update {number}",
            )
        with clock("teacher"):
            trajectories = self._taught(number, trajectories)
        trajectories = self.rewards.apply(trajectories)
        signals = self._signals(number, trajectories, clock)
        batch = CreditBatch.from_trajectories(
            trajectories,
            signals=signals,
            invalid_action_penalty=self.rewards.invalid_action_penalty,
            penalty_in_reward=self.rewards.penalty_in_reward,
            progress=share_done,
        )
        if not batch.included.any():
            first = next((t.error for t in trajectories if t.error), "no reward")
            what = f"none of the {len(trajectories)} rollouts of update {number} has a valid reward ({first})"
            raise TrainingError(what, mend="mend the environment; the same command goes on from the last checkpoint")
        return trajectories, batch

    def _taught(self, number: int, trajectories: list[Trajectory]) -> list[Trajectory]:
        """Give the turns their teacher's prompts, and say so where few of them have one."""
        if self.method.teacher == "none":
            return trajectories
        if self.method.teacher == "feedback":
            trajectories = with_feedback(trajectories, self.make_env, self.prompter)
        elif self.sources.references == "shuffled":
            trajectories = with_shuffled_references(trajectories, self.make_env, self.prompter, seed=number)
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        taught = sum(turn.teacher_prompt_ids is not None for turn in turns) / max(len(turns), 1)
        if turns and taught < FEW_TAUGHT:
            what = (
                f"{self.method.name} learns from a teacher, but only {taught:.0%} of the turns have something to show"
            )
            warnings.warn(f"{what} it: elsewhere it sees what the student sees", stacklevel=2)
        return trajectories

    def _signals(self, number: int, trajectories: list[Trajectory], clock: Clock) -> dict[str, Floats]:
        needed = self.method.signals_for(self.params)
        signals: dict[str, Floats] = {}
        with clock("signals"):
            signals |= compute_signals(
                self.policy.model,
                trajectories,
                [name for name in needed if name not in SIGNAL_LEVELS],
                temperature=self.sampling.temperature,
                batch_tokens=self.batch_tokens,
            )
            if self.critic is not None:
                signals["values"] = self.critic.values(trajectories)
        if "rollout_values" in needed:
            penalty = self.rewards.invalid_action_penalty if self.rewards.penalty_in_reward else 0.0
            gamma = {**self.method.params, **self.params}.get("gamma", 1.0)
            with clock("branches"):
                branched = rollout_values(
                    self.policy,
                    self.make_env,
                    trajectories,
                    prompter=self.prompter,
                    sampling=self.sampling,
                    rollouts=self.sources.branches,
                    seed=number,
                    parallel=self.parallel,
                    rewards=self.rewards.apply,
                    invalid_action_penalty=penalty,
                    gamma=gamma,
                )
            signals["rollout_values"] = branched.values
            self.costs = branched.costs
        return signals
