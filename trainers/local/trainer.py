"""The training loop: rollouts, signals, credit, one update of the policy, log, checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
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
from agentbench_credit.rollout import Start
from agentbench_credit.run_folder import only_process
from agentbench_credit.signals import check_model
from agentbench_credit.trainer import Objective, Optimisation, RewardRule, SignalSources, TaskSchedule
from agentbench_credit.trainers.local.checkpoint import Part, load_checkpoint, newest_checkpoint, save_checkpoint
from agentbench_credit.trainers.local.collect import Clock, Collector
from agentbench_credit.trainers.local.critic import Critic
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
    rewards: RewardRule | None = None,
    sources: SignalSources | None = None,
    parallel: int = 128,
    checkpoint_every: int = 10,
) -> Path:
    """Train a policy in place, going on from the newest checkpoint in the folder.

    Nothing random is kept between updates: a run that was stopped ends with the same weights as one that was not, on
    the same machine with the same number of threads.

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
        rewards: What counts as reward; None takes the environment's as it is.
        sources: Where signals come from that are more than a pass over the rollouts; None for the defaults.
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
    needed = method.signals_for(method_params)
    if "final_values" in needed:
        mend = 'use truncation="terminal": no prompt is rendered after the last turn for the critic to read'
        raise ConfigError(f"{method.name} reads final_values", where="the local trainer", mend=mend)
    check_model(policy.model)
    reference = deepcopy(policy.model).requires_grad_(False) if objective.kl_coefficient > 0 else None
    optimiser = Optimiser(policy.model, reference, objective, optimisation, sampling)
    sources = sources or SignalSources()
    critic = _critic(policy, optimisation, sources) if "values" in needed else None
    collector = Collector(
        policy,
        make_env,
        method,
        method_params,
        rewards or RewardRule(),
        sources,
        prompter,
        sampling,
        optimisation.batch_tokens,
        parallel,
        critic,
    )
    parts: dict[str, Part] = {"optimiser": optimiser} | ({} if critic is None else {"critic": critic})
    with only_process(out):
        return _train(out, schedule, collector, optimiser, parts, checkpoint_every)


def _critic(policy: TransformersPolicy, optimisation: Optimisation, sources: SignalSources) -> Critic:
    return Critic(
        policy.model,
        lr=sources.critic_lr,
        epochs=optimisation.epochs,
        batch_tokens=optimisation.batch_tokens,
        max_grad_norm=optimisation.max_grad_norm,
    )


def _train(
    out: Path,
    schedule: TaskSchedule,
    collector: Collector,
    optimiser: Optimiser,
    parts: Mapping[str, Part],
    checkpoint_every: int,
) -> Path:
    """Do the updates that the folder's newest checkpoint has not done; returns the last checkpoint."""
    policy, name, updates = collector.policy, collector.method.name, schedule.updates
    newest = newest_checkpoint(out)
    done = 0 if newest is None else load_checkpoint(newest, policy.model, parts)
    if newest is not None and done >= updates:
        print(f"{newest}: all {done} updates are done, nothing is left to train")
        return newest
    with TrainingLog(out, done) as log, progress(f"train {name}", updates - done) as bar:
        for number in range(done + 1, updates + 1):
            row, rollouts = _update(number, schedule.starts(number), (number - 1) / updates, collector, optimiser)
            log.write(row)
            if number % checkpoint_every == 0 or number == updates:
                newest = save_checkpoint(out, number, policy, parts, rollouts)
            bar.advance(text=f"success {row['success_rate']:.1%}, return {row['return_mean']:.2f}")
    assert newest is not None, "the last update has a checkpoint"
    return newest


def _update(
    number: int, starts: Sequence[Start], share_done: float, collector: Collector, optimiser: Optimiser
) -> tuple[dict[str, float], list[Trajectory]]:
    """Do one update; returns its row of the log and its rollouts."""
    clock = Clock()
    trajectories, batch = collector.collect(number, starts, share_done, clock)
    with clock("credit"):
        credit = collector.method(batch, **collector.params)
    with clock("optimise"):
        metrics = optimiser.update(number, trajectories, batch, credit)
        if collector.critic is not None and credit.value_targets is not None:
            metrics |= collector.critic.update(trajectories, credit.value_targets, batch.included)
    row = {"update": number} | _outcome(trajectories, batch) | metrics | clock.seconds | collector.costs
    return row | _scalars(credit), trajectories


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
    numbers = (bool, int, float, np.number, np.bool_)
    return {f"credit_{k}": float(v) for k, v in credit.diagnostics.items() if isinstance(v, numbers)}
