"""Values of visited states by fresh rollouts from them: the signal ``rollout_values``."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from agentbench_credit.batch import CreditBatch, Floats
from agentbench_credit.env import AgentEnv
from agentbench_credit.errors import ConfigError, EnvironmentContractError
from agentbench_credit.policy.base import Policy, Sampling
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.rollout import Start, play
from agentbench_credit.trajectory import Ids, Trajectory


@dataclass(frozen=True, eq=False)
class BranchedValues:
    """Values by fresh rollouts, and what they cost."""

    values: Floats
    """Mean return-to-go from the state before each turn [T], 0 in rollouts without a valid reward."""
    costs: dict[str, float]
    """Columns for a log: ``branch_states`` that were rolled from, ``branch_rollouts``, ``branch_crashed`` of them,
    ``branch_turns``, ``branch_tokens`` sampled, ``branch_seconds``."""


@dataclass(eq=False)
class _Branch:
    """A state to roll from, and what the rollouts gave so far."""

    trajectory: Trajectory
    turn: int
    snapshot: object
    returns: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def prompt_ids(self) -> Ids:
        """The prompt that the policy saw in this state."""
        return self.trajectory.turns[self.turn].prompt_ids

    @property
    def where(self) -> str:
        """Name of the place, for messages."""
        return f"group {self.trajectory.group_id}, task {self.trajectory.task_id}, turn {self.turn}"

    def starts(self, rollouts: int, seed: int, group_id: str) -> list[Start]:
        """Return the fresh rollouts, with seeds of their own."""
        sequence = np.random.SeedSequence([seed, self.trajectory.seed, self.turn])
        seeds = sequence.generate_state(rollouts, np.uint64).tolist()
        past = self.trajectory.turns[: self.turn]
        return [Start(self.trajectory.task_id, group_id, each, self.snapshot, past) for each in seeds]

    def take(self, fresh: Trajectory, batch: CreditBatch, gamma: float) -> None:
        """Keep what a fresh rollout, alone in its batch, came to.

        Raises:
            ConfigError: Its first prompt is not the one that the trajectory has in this state.
        """
        if fresh.turns and not np.array_equal(fresh.turns[0].prompt_ids, self.prompt_ids):
            mend = "use the prompter of the rollouts; restore() must return the observation that the state had"
            raise ConfigError("a fresh rollout starts with another prompt", where=self.where, mend=mend)
        if batch.included[0]:
            self.returns.append(float(batch.discounted_returns(gamma)[0]))
        else:
            self.error = fresh.error or f"{len(fresh.turns)} turns without a valid reward"

    def mean(self) -> float:
        """Return the mean return-to-go of the rollouts that came to one.

        Raises:
            EnvironmentContractError: None did.
        """
        if not self.returns:
            what = f"no fresh rollout came to a valid return ({self.error})"
            raise EnvironmentContractError(what, where=self.where, mend="mend the environment, or leave this task out")
        lowest = min(self.returns)  # as offset: returns that are all equal have exactly that mean, whatever their order
        return lowest + math.fsum(value - lowest for value in self.returns) / len(self.returns)


def rollout_values(
    policy: Policy,
    make_env: Callable[[], AgentEnv],
    trajectories: Sequence[Trajectory],
    *,
    prompter: Prompter,
    sampling: Sampling,
    rollouts: int = 9,
    seed: int,
    parallel: int = 128,
    rewards: Callable[[Sequence[Trajectory]], Sequence[Trajectory]] = list,
    invalid_action_penalty: float = 0.0,
    gamma: float = 1.0,
) -> BranchedValues:
    """Estimate V(s_t) of every turn by the mean return-to-go of fresh rollouts from there (2410.01679, section 4).

    Each trajectory's actions are played again in one environment, which takes a snapshot before every turn. The fresh
    rollouts start from the restored snapshot with the prompt that the policy saw there; only their own turns count.
    Turns of one task with the same snapshot (compared as pickled) and the same prompt have the same rollouts, since
    state, turns left and everything that prompts will show are then equal: a group's first state is rolled once.

    Args:
        policy: Answers the prompts; the one that played the trajectories.
        make_env: Builds one environment with snapshots.
        trajectories: Rollouts, N with T turns in all. One that crashed or misses a reward is skipped.
        prompter: Renders the prompts, as for the trajectories.
        sampling: How tokens are drawn, as for the trajectories.
        rollouts: Fresh rollouts K from each state.
        seed: Seed of their sampling, together with that of the trajectory; 0 or more.
        parallel: Most episodes under way at once.
        rewards: Gives rollouts the rewards that count, such as `agentbench_credit.trainer.RewardRule.apply`.
        invalid_action_penalty: What a turn with an invalid action costs, as a negative number; as in the batch's
            rewards.
        gamma: Discount of the return-to-go; the method's.

    Returns:
        Values [T] and costs.

    Raises:
        ConfigError: Fewer than one rollout, or a prompter that renders other prompts than the trajectories have.
        EnvironmentContractError: The environment has no snapshots, the same actions lead to another state, or no
            fresh rollout from a state came to a valid return.
        CreditInputError: An infinite reward.
    """
    if rollouts < 1:
        raise ConfigError(f"{rollouts} rollouts from each state", where="rollout_values", mend="use at least 1")
    began = time.perf_counter()
    branches, branch_of_turn = _branches(make_env, trajectories)
    starts = [start for i, branch in enumerate(branches) for start in branch.starts(rollouts, seed, f"branch {i}")]
    turns = tokens = 0
    played = play(
        policy, make_env, starts, prompter=prompter, sampling=sampling, parallel=parallel, label="branch rollouts"
    )
    with closing(played):
        for index, fresh in played:
            turns, tokens = turns + len(fresh.turns), tokens + fresh.n_tokens
            batch = CreditBatch.from_trajectories(rewards([fresh]), invalid_action_penalty=invalid_action_penalty)
            branches[index // rollouts].take(fresh, batch, gamma)
    values = np.array([0.0 if i is None else branches[i].mean() for i in branch_of_turn], dtype=np.float64)
    costs = {
        "states": len(branches),
        "rollouts": len(starts),
        "crashed": len(starts) - sum(len(branch.returns) for branch in branches),
        "turns": turns,
        "tokens": tokens,
        "seconds": time.perf_counter() - began,
    }
    return BranchedValues(values, {f"branch_{name}": float(value) for name, value in costs.items()})


def _branches(
    make_env: Callable[[], AgentEnv], trajectories: Sequence[Trajectory]
) -> tuple[list[_Branch], list[int | None]]:
    """Return the different states to roll from, and which of them each turn has; None in rollouts left out."""
    included = CreditBatch.from_trajectories(trajectories).included
    branches: list[_Branch] = []
    known: dict[tuple[str, bytes, bytes], int] = {}
    branch_of_turn: list[int | None] = []
    env = make_env()
    try:
        for trajectory, counts in zip(trajectories, included.tolist(), strict=True):
            if not counts:
                branch_of_turn += [None] * len(trajectory.turns)
                continue
            for branch in _replay(env, trajectory):
                prompt = np.asarray(branch.prompt_ids, dtype=np.int32).tobytes()
                key = (trajectory.task_id, pickle.dumps(branch.snapshot), prompt)
                index = known.setdefault(key, len(branches))
                if index == len(branches):
                    branches.append(branch)
                branch_of_turn.append(index)
    finally:
        env.close()
    return branches, branch_of_turn


def _replay(env: AgentEnv, trajectory: Trajectory) -> Iterator[_Branch]:
    """Play a trajectory again; yields its state before each turn."""
    _, info = env.reset(options={"task": trajectory.task_id})
    for number, turn in enumerate(trajectory.turns):
        branch = _Branch(trajectory, number, env.snapshot())
        if info["state_key"] != turn.state_key:
            keys = f"key {turn.state_key!r} before, {info['state_key']!r} now"
            what, mend = f"the same actions lead to another state: {keys}", "steps must be deterministic, see check_env"
            raise EnvironmentContractError(what, where=branch.where, mend=mend)
        if branch.snapshot is None:
            mend = "implement snapshot() and restore(), or use a method that does not read rollout_values"
            raise EnvironmentContractError("the environment gives no snapshot", where=branch.where, mend=mend)
        yield branch
        if number + 1 < len(trajectory.turns):
            _, _, _, _, info = env.step(turn.action)
