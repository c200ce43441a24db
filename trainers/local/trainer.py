"""The training loop: rollouts, signals, credit, one update of the policy, log, checkpoint."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agentbench_credit.batch import CreditBatch
from agentbench_credit.command import progress
from agentbench_credit.credit.method import Credit, CreditMethod
from agentbench_credit.env import AgentEnv
from agentbench_credit.errors import ConfigError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.policy.transformers import TransformersPolicy
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.signals import check_model, compute_signals
from agentbench_credit.trainer import Objective, Optimisation, TaskSchedule, outcome_rewards
from agentbench_credit.trainers.local.checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from agentbench_credit.trainers.local.log import TrainingLog
from agentbench_credit.trainers.local.optimise import Optimiser
from agentbench_credit.trajectory import Trajectory


def train(
    policy: TransformersPolicy,
    make_env: Callable[[], AgentEnv],
    schedule: TaskSchedule,
    method: CreditMethod,
    out: Path,
    *,
    method_params: Mapping[str, Any],
    objective: Objective,
    optimisation: Optimisation,
    sampling: Sampling,
    prompter: Prompter,
    success_reward: float | None = None,
    invalid_action_penalty: float = 0.0,
    parallel: int = 128,
    checkpoint_every: int = 10,
) -> Path:
    """Train a policy in place, going on from the newest checkpoint in the folder.

    Nothing random is kept between updates: a run that was stopped ends with the same losses and weights as one that
    was not, on the same machine with the same number of threads.

    Args:
        policy: Its model is trained; the initial weights are the reference.
        make_env: Builds one environment.
        schedule: How many updates there are, those of the checkpoint included, and which rollouts each does.
        method: Assigns credit.
        out: Folder for checkpoints and logs.
        method_params: The credit method's parameters.
        objective: What is optimised.
        optimisation: How.
        sampling: How rollouts are sampled: from the whole softmax, without top_p and top_k.
        prompter: Renders prompts.
        success_reward: Reward of a success in place of the environment's, see `outcome_rewards`; None keeps those.
        invalid_action_penalty: Added to the reward of a turn with an invalid action, 0 or negative.
        parallel: Episodes under way at once.
        checkpoint_every: Updates between checkpoints; the last update always has one.

    Returns:
        The last checkpoint.

    Raises:
        ConfigError: Parameters that contradict each other.
    """
    if not sampling.is_full_softmax:
        mend = "train with temperature > 0, top_p 1 and top_k 0; the ratio is over the whole vocabulary"
        raise ConfigError(f"cannot train on {sampling}", mend=mend)
    if checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every is {checkpoint_every}", mend="use at least 1")
    check_model(policy.model)
    reference = deepcopy(policy.model).requires_grad_(False) if objective.kl_coefficient > 0 else None
    optimiser = Optimiser(policy.model, reference, objective, optimisation, sampling)
    newest = newest_checkpoint(out)
    done = 0 if newest is None else load_checkpoint(newest, policy.model, optimiser.optimizer)
    updates = schedule.updates
    if newest is not None and done >= updates:
        print(f"{newest}: all {done} updates are done, nothing is left to train")
        return newest
    update = partial(
        _update,
        collect=partial(rollout, policy, make_env, prompter=prompter, sampling=sampling, parallel=parallel),
        method=method,
        method_params=method_params,
        optimiser=optimiser,
        success_reward=success_reward,
        invalid_action_penalty=invalid_action_penalty,
    )
    with TrainingLog(out, done) as log, progress(f"train {method.name}", updates - done) as bar:
        for number in range(done + 1, updates + 1):
            row = update(number, schedule.starts(number), share_done=(number - 1) / updates)
            log.write(row)
            if number % checkpoint_every == 0 or number == updates:
                newest = save_checkpoint(out, number, policy, optimiser.optimizer)
            bar.advance(text=f"success {row['success_rate']:.1%}, return {row['return_mean']:.2f}")
    assert newest is not None, "the last update has a checkpoint"
    return newest


def _update(
    number: int,
    starts: Sequence[Start],
    *,
    share_done: float,
    collect: Callable[..., list[Trajectory]],
    method: CreditMethod,
    method_params: Mapping[str, Any],
    optimiser: Optimiser,
    success_reward: float | None,
    invalid_action_penalty: float,
) -> dict[str, float]:
    """Do one update; returns its row of the log."""
    clock = _Clock()
    needed = method.signals_for(method_params)
    reads_teacher = method.teacher == "reference"
    with clock("rollout"):
        trajectories = collect(starts, with_reference=reads_teacher, label=f"update {number}")
    if success_reward is not None:
        trajectories = outcome_rewards(trajectories, success_reward)
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    if reads_teacher and turns and all(turn.teacher_prompt_ids is None for turn in turns):
        what = f"{method.name} compares with a teacher, but the environment gave no reference in update {number}"
        warnings.warn(f"{what}: the teacher sees what the student sees", stacklevel=2)
    with clock("signals"):
        signals = compute_signals(
            optimiser.model,
            trajectories,
            needed,
            temperature=optimiser.sampling.temperature,
            batch_tokens=optimiser.optimisation.batch_tokens,
        )
    with clock("credit"):
        batch = CreditBatch.from_trajectories(
            trajectories, signals=signals, invalid_action_penalty=invalid_action_penalty, progress=share_done
        )
        credit = method(batch, **method_params)
    with clock("optimise"):
        metrics = optimiser.update(number, trajectories, batch, credit)
    return {"update": number} | _outcome(trajectories, batch) | metrics | clock.seconds | _scalars(credit)


def _outcome(trajectories: Sequence[Trajectory], batch: CreditBatch) -> dict[str, float]:
    """Return what the rollouts achieved; failed ones count as failures."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    returns = batch.returns[batch.included]
    return {
        "success_rate": float(np.mean([trajectory.success for trajectory in trajectories])),
        "return_mean": float(returns.mean()) if len(returns) else float("nan"),
        "turns": len(turns) / len(trajectories),
        "tokens": batch.n_tokens / len(trajectories),
        "invalid_actions": sum(not turn.action_valid for turn in turns) / max(len(turns), 1),
        "errors": sum(trajectory.state == "error" for trajectory in trajectories),
        # Sampled tokens estimate the policy's entropy without another pass.
        "entropy": -float(batch.logp.mean()) if batch.n_tokens else float("nan"),
    }


def _scalars(credit: Credit) -> dict[str, float]:
    """Return the method's diagnostics that are single numbers."""
    numbers = {name: value for name, value in credit.diagnostics.items() if np.ndim(value) == 0}
    return {f"credit_{name}": float(value) for name, value in numbers.items() if not isinstance(value, str)}


class _Clock:
    """Seconds by part of an update."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[f"seconds_{part}"] = time.perf_counter() - began
