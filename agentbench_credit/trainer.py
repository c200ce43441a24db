"""What a trainer is, and what all of them share: which rollouts an update does and the objective it optimises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from agentbench_credit.credit.method import Ratio
from agentbench_credit.env import Panel
from agentbench_credit.errors import ConfigError
from agentbench_credit.registry import Registry, subpackages
from agentbench_credit.rollout import Start
from agentbench_credit.trajectory import Trajectory, Turn

LossAggregation = Literal["token-mean", "sequence-mean", "constant"]


@dataclass(frozen=True)
class Objective:
    """The clipped policy gradient with a divergence from the reference model."""

    ratio: Ratio | None = None
    """Importance ratio per ``token``, ``turn`` or ``sequence`` (trajectory); None takes the credit method's own."""
    clip_low: float = 0.2
    """How far the ratio may fall below 1."""
    clip_high: float = 0.2
    """How far the ratio may rise above 1."""
    dual_clip: float | None = 3.0
    """Bound on the ratio where the advantage is negative; None for no bound."""
    loss_aggregation: LossAggregation = "token-mean"
    """How token losses become one number: mean over tokens, mean over trajectories, or divided by a constant length."""
    kl_coefficient: float = 0.01
    """Weight of the k3 divergence from the initial model; 0 leaves it out and needs no second model."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges.

        Raises:
            ConfigError: A value is out of range.
        """
        clips = 0 <= self.clip_low < 1 and self.clip_high >= 0 and (self.dual_clip is None or self.dual_clip > 1)
        if not (clips and self.kl_coefficient >= 0):
            mend = "0 <= clip_low < 1, clip_high >= 0, dual_clip > 1 or None, kl_coefficient >= 0"
            raise ConfigError(f"objective out of range: {self}", mend=mend)


@dataclass(frozen=True)
class Optimisation:
    """How the objective is optimised: AdamW, with the gradient accumulated over micro-batches."""

    lr: float
    """Learning rate after the warm-up."""
    warmup_updates: int = 0
    """Updates over which the learning rate rises linearly."""
    max_grad_norm: float = 1.0
    """Longest gradient; a longer one is scaled down."""
    epochs: int = 1
    """Passes over the rollouts of one update."""
    minibatches: int = 1
    """Optimiser steps of one pass; each takes whole groups."""
    batch_tokens: int = 16384
    """Most tokens of a forward pass and of a micro-batch, unless what must stay together has more."""
    ratio_tolerance: float = 1e-4
    """Largest difference between the model's and the sampled log-probabilities before the first step of an update."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges.

        Raises:
            ConfigError: A value is out of range.
        """
        counts = min(self.epochs, self.minibatches, self.batch_tokens) >= 1 and self.warmup_updates >= 0
        if not (counts and self.lr > 0 and self.max_grad_norm > 0 and self.ratio_tolerance >= 0):
            mend = "everything above 0, but warmup_updates and ratio_tolerance may be 0"
            raise ConfigError(f"optimisation out of range: {self}", mend=mend)


class TaskSchedule:
    """Which rollouts each update does; a function of the seed and the update's number, with no state.

    Every epoch goes through the panel in a new order; tasks that are left over at its end wait for another epoch.

    Args:
        panel: The tasks.
        updates: Updates of the whole training.
        tasks_per_update: Groups of an update.
        group_size: Rollouts of each task.
        seed: Seed of task order and sampling, 0 or more.

    Raises:
        ConfigError: A number out of range, or more tasks per update than the panel has.
    """

    def __init__(self, panel: Panel, *, updates: int, tasks_per_update: int, group_size: int, seed: int) -> None:
        if not (1 <= tasks_per_update <= len(panel) and updates >= 1 and group_size >= 1 and seed >= 0):
            what = f"updates {updates}, tasks_per_update {tasks_per_update}, group_size {group_size}, seed {seed}"
            mend = (
                f"use 1 to {len(panel)} tasks of this panel, updates and group size of at least 1, a seed of at least 0"
            )
            raise ConfigError(what, where=str(panel), mend=mend)
        self.panel, self.updates, self.seed = panel, updates, seed
        self.tasks_per_update, self.group_size = tasks_per_update, group_size

    def starts(self, update: int) -> list[Start]:
        """Return the rollouts of an update, group by group.

        Args:
            update: Number of the update, from 1.

        Returns:
            The starts; the group id is ``update:task``.
        """
        n = self.tasks_per_update
        epoch, place = divmod(update - 1, len(self.panel) // n)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.panel))
        return [
            Start(self.panel.tasks[task].id, f"{update}:{self.panel.tasks[task].id}", self._seed(update, task, member))
            for task in order[place * n : (place + 1) * n].tolist()
            for member in range(self.group_size)
        ]

    def _seed(self, update: int, task: int, member: int) -> int:
        sequence = np.random.SeedSequence([self.seed, update, task, member])
        return int(sequence.generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class RewardRule:
    """What a trainer takes as the reward of a turn."""

    success_reward: float | None = None
    """Reward of a success in place of the environment's, see `outcome_rewards`; None keeps those."""
    invalid_action_penalty: float = 0.0
    """What a turn with an invalid action costs, as a negative number."""
    penalty_in_reward: bool = True
    """Whether the penalty is part of the reward; if not, it is added to the turn's advantage, where it stays local."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges.

        Raises:
            ConfigError: A value is out of range.
        """
        if self.success_reward is not None and not math.isfinite(self.success_reward):
            raise ConfigError(f"success_reward is {self.success_reward}", mend="give a finite number")
        if not -math.inf < self.invalid_action_penalty <= 0:
            what = f"invalid_action_penalty is {self.invalid_action_penalty}"
            raise ConfigError(what, mend="give 0 or a finite negative number")

    def apply(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the rollouts with the rewards that count; the penalty is the batch's to add."""
        return list(trajectories) if self.success_reward is None else outcome_rewards(trajectories, self.success_reward)


@dataclass(frozen=True)
class SignalSources:
    """Where the signals come from that are more than a pass over the rollouts."""

    references: Literal["own", "shuffled"] = "own"
    """What a teacher reads: the reference of the task, or as a control the one of another task of the update."""
    branches: int = 9
    """Fresh rollouts from every visited state, for methods that read ``rollout_values`` (9 in 2410.01679)."""
    critic_lr: float = 1e-5
    """Learning rate of the critic, for methods that read ``values``."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges.

        Raises:
            ConfigError: A value is out of range.
        """
        if not (self.branches >= 1 and 0 < self.critic_lr < math.inf):
            what = f"branches {self.branches}, critic_lr {self.critic_lr}"
            raise ConfigError(what, mend="use at least 1 branch and a learning rate above 0")


def outcome_rewards(trajectories: Sequence[Trajectory], reward: float) -> list[Trajectory]:
    """Replace the environment's rewards by one for the outcome, as the papers do in ALFWorld and WebShop (10 or 0).

    Dense rewards have a trap: where a whole group fails, dividing by the group's standard deviation turns small
    differences, such as a cost per step, into advantages as large as those of success.

    Args:
        trajectories: Rollouts.
        reward: What the last turn of a success gets; every other turn gets 0.

    Returns:
        The same rollouts with these rewards; a missing reward (None, NaN) stays missing, and an infinite one infinite.
    """

    def outcome(turn: Turn, success: bool) -> Turn:
        known = turn.reward is not None and math.isfinite(turn.reward)
        return replace(turn, reward=reward * success) if known else turn

    return [
        replace(
            trajectory,
            turns=tuple(
                outcome(turn, trajectory.success and number == len(trajectory.turns))
                for number, turn in enumerate(trajectory.turns, start=1)
            ),
        )
        for trajectory in trajectories
    ]


@dataclass(frozen=True)
class Trainer:
    """A registered trainer."""

    name: str
    """The registry name (``"local"``)."""
    train: Callable[..., Path] = field(repr=False)
    """Trains a policy and returns the folder of its last checkpoint; `agentbench_credit.train` shows the arguments."""
    newest: Callable[[Path], Path | None] = field(repr=False)
    """Returns the newest checkpoint below a run's folder, None if there is none."""


def _builtin() -> dict[str, str]:
    import agentbench_credit.trainers

    return subpackages(agentbench_credit.trainers, "TRAINER")


TRAINERS: Registry[Trainer] = Registry("trainer", "agentbench_credit.trainers", base=Trainer, builtin=_builtin)
