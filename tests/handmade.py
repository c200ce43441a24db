"""Trajectories made by hand: token ids only, for tests of samples, signals and trainers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentbench_credit.trajectory import State, Trajectory, Turn


def make_turn(
    prompt: Sequence[int],
    response: Sequence[int],
    *,
    teacher: Sequence[int] | None = None,
    logprobs: Sequence[float] | None = None,
    reward: float | None = 0.0,
) -> Turn:
    """Return a turn with these ids; log-probabilities are 0 unless given."""
    return Turn(
        observation="",
        state_key=bytes(str(list(prompt)), "ascii"),
        admissible_actions=None,
        prompt_ids=np.asarray(prompt, np.int32),
        response_ids=np.asarray(response, np.int32),
        logprobs=np.zeros(len(response), np.float32) if logprobs is None else np.asarray(logprobs, np.float32),
        finish_reason="stop",
        response="",
        action="",
        action_valid=True,
        reward=reward,
        teacher_prompt_ids=None if teacher is None else np.asarray(teacher, np.int32),
    )


def make_trajectory(turns: Sequence[Turn], *, group: str = "g", state: State = "ended") -> Trajectory:
    """Return a trajectory of these turns."""
    return Trajectory(
        env_id="test/Handmade-v0",
        env_kwargs={},
        task_id=group,
        group_id=group,
        seed=0,
        policy_id="handmade",
        sampling={},
        turns=tuple(turns),
        final_state_key=b"",
        state=state,
        success=False,
    )


def random_trajectories(
    rng: np.random.Generator, n: int, *, vocab_size: int = 300, conversation: bool = False, teacher: bool = False
) -> list[Trajectory]:
    """Return ragged random trajectories, two to a group, with 0 to 3 turns of 0 to 4 response tokens."""
    trajectories = []
    for index in range(n):
        turns: list[Turn] = []
        for _ in range(rng.integers(0, 4)):
            prompt = rng.integers(3, vocab_size, rng.integers(1, 9)).tolist()
            if conversation and turns:
                prompt = [*turns[-1].prompt_ids.tolist(), *turns[-1].response_ids.tolist(), *prompt]
            response = rng.integers(3, vocab_size, rng.integers(0, 5)).tolist()
            plan = rng.integers(3, vocab_size, 3).tolist()
            shown = [*plan, *prompt] if teacher and rng.random() < 0.7 else None
            turns.append(make_turn(prompt, response, teacher=shown, reward=float(rng.normal())))
        trajectories.append(make_trajectory(turns, group=f"g{index // 2}"))
    return trajectories
