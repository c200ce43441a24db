"""Teachers' prompts made after the rollouts: what a sibling did, what came of it, or another task's reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from agentbench_credit.env import AgentEnv
from agentbench_credit.errors import ConfigError, EnvironmentContractError
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.trajectory import Ids, Trajectory


def with_feedback(
    trajectories: Sequence[Trajectory], make_env: Callable[[], AgentEnv], prompter: Prompter
) -> list[Trajectory]:
    """Let each rollout's teacher see a success of its group, or what the environment said in the end.

    The teacher of a rollout sees the accepted actions, one a line, of the first other success of its group. Without
    one, it sees the last observation, which the rollout's actions are played again for. A rollout that crashed, or
    whose last observation is empty, has no teacher's prompt.

    Args:
        trajectories: Rollouts.
        make_env: Builds the environment that they were played in.
        prompter: Rendered their prompts.

    Returns:
        The same rollouts with ``teacher_prompt_ids`` on every turn, None where there is nothing to show.

    Raises:
        EnvironmentContractError: The same actions lead to another state than before.
    """
    groups: dict[str, list[int]] = {}
    for index, trajectory in enumerate(trajectories):
        groups.setdefault(trajectory.group_id, []).append(index)
    taught = [_shown(trajectory, None, "", prompter) for trajectory in trajectories]
    env = make_env()
    try:
        for members in groups.values():
            played = [index for index in members if trajectories[index].turns and trajectories[index].state != "error"]
            if not played:
                continue
            instruction = _instruction(env, trajectories[played[0]])
            plans = {index: _plan(trajectories[index]) for index in played if trajectories[index].success}
            for index in played:
                plan = next((plan for other, plan in plans.items() if plan and other != index), None)
                shown = plan or _ending(env, trajectories[index])
                taught[index] = _shown(trajectories[index], shown, instruction, prompter)
    finally:
        env.close()
    return taught


def with_shuffled_references(
    trajectories: Sequence[Trajectory], make_env: Callable[[], AgentEnv], prompter: Prompter, seed: int
) -> list[Trajectory]:
    """Let each group's teacher see another group's reference: the control for what a reference is worth.

    No group sees its own, and each reference is seen by one group. It is the reference at the start, on every turn.

    Args:
        trajectories: Rollouts of several groups.
        make_env: Builds the environment that they were played in.
        prompter: Rendered their prompts.
        seed: Decides which group sees which, 0 or more.

    Returns:
        The same rollouts with ``teacher_prompt_ids`` on every turn; None in groups without a reference of their own.

    Raises:
        ConfigError: Fewer than two groups have a reference.
    """
    references: dict[str, str] = {}
    for trajectory in trajectories:
        if trajectory.reference is not None:
            references.setdefault(trajectory.group_id, trajectory.reference)
    if len(references) < 2:
        what = f"{len(references)} group with a reference, there is no other to take one from"
        raise ConfigError(what, where="shuffled references", mend="use at least two tasks per update that have one")
    # Each takes from the next in a random circle, so none from itself.
    circle = [list(references)[i] for i in np.random.default_rng(seed).permutation(len(references))]
    source = dict(zip(circle, [*circle[1:], circle[0]], strict=True))
    instructions: dict[str, str] = {}
    env = make_env()
    try:
        for trajectory in trajectories:
            if trajectory.group_id in source and trajectory.turns and trajectory.group_id not in instructions:
                instructions[trajectory.group_id] = _instruction(env, trajectory)
    finally:
        env.close()
    return [
        _shown(t, references[source[t.group_id]], instructions[t.group_id], prompter)
        if t.group_id in instructions
        else _shown(t, None, "", prompter)
        for t in trajectories
    ]


def _instruction(env: AgentEnv, trajectory: Trajectory) -> str:
    return str(env.reset(options={"task": trajectory.task_id})[1]["instruction"])


def _plan(trajectory: Trajectory) -> str:
    """Return the actions that the environment accepted; a refused one changed nothing."""
    return "\n".join(turn.action for turn in trajectory.turns if turn.action_valid)


def _ending(env: AgentEnv, trajectory: Trajectory) -> str | None:
    """Return what the environment said after the last action, None if it was nothing."""
    observation, info = env.reset(options={"task": trajectory.task_id})
    for turn in trajectory.turns:
        observation, _, _, _, info = env.step(turn.action)
    if info["state_key"] != trajectory.final_state_key:
        keys = f"key {trajectory.final_state_key!r} before, {info['state_key']!r} now"
        what = f"the same actions lead to another state: {keys}"
        where = f"group {trajectory.group_id}, task {trajectory.task_id}"
        raise EnvironmentContractError(what, where=where, mend="steps must be deterministic, see check_env")
    return f"This attempt ended with: {observation}" if observation.strip() else None


def _shown(trajectory: Trajectory, reference: str | None, instruction: str, prompter: Prompter) -> Trajectory:
    """Return a rollout whose teacher's prompts show a text, None takes them away."""
    observations = [turn.observation for turn in trajectory.turns]
    responses = [turn.response for turn in trajectory.turns]

    def prompt(t: int) -> Ids | None:
        if reference is None:
            return None
        if t == 0:
            return prompter.first(instruction, observations[0], reference=reference)
        return prompter.next(instruction, observations[: t + 1], responses[:t], None, reference=reference)

    turns = tuple(replace(turn, teacher_prompt_ids=prompt(t)) for t, turn in enumerate(trajectory.turns))
    return replace(trajectory, turns=turns)
