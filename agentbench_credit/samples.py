"""From trajectories to the token sequences that a model runs on, with the ids exactly as fed and sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentbench_credit.batch import Ints
from agentbench_credit.errors import TrainingError
from agentbench_credit.trajectory import Ids, Trajectory


@dataclass(frozen=True, eq=False)
class Sample:
    """One sequence: a turn, or several turns that follow each other in one conversation."""

    ids: Ids
    """Token ids [L]: prompts, responses and what the environment said in between."""
    positions: Ints
    """Where the response tokens are in `ids` [R], ascending; never 0."""
    tokens: Ints
    """Their indices on the token axis of the batch [R]."""
    trajectory: int
    """The trajectory they belong to."""


def build_samples(trajectories: Sequence[Trajectory], teacher: bool = False) -> list[Sample]:
    """Make sequences from turns; every response token is in exactly one of them.

    Turns whose prompt extends the previous prompt and response become one sequence. Any other turn, such as one whose
    chat template dropped earlier reasoning, starts a sequence of its own. Nothing is decoded or tokenised again.

    Args:
        trajectories: Rollouts; the token axis runs over their trajectories, turns and tokens.
        teacher: Take the prompts that show the ground truth, and plain ones where there is none.

    Returns:
        The sequences in the order of their first tokens; turns without a response token are left out.

    Raises:
        TrainingError: A response without a prompt.
    """
    samples: list[Sample] = []
    first_token = 0
    for index, trajectory in enumerate(trajectories):
        prompts = [turn.prompt_ids for turn in trajectory.turns]
        if teacher:
            shown = [turn.teacher_prompt_ids for turn in trajectory.turns]
            prompts = [plain if plan is None else plan for plain, plan in zip(prompts, shown, strict=True)]
        responses = [turn.response_ids for turn in trajectory.turns]
        for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            if len(response) and not len(prompt):
                raise TrainingError("a response without a prompt", where=_place(trajectories, index, number))
        offsets = first_token + np.cumsum([0, *map(len, responses)])
        for start, end in _conversations(prompts, responses):
            turns = range(start, end)
            positions = np.concatenate([len(prompts[t]) + np.arange(len(responses[t])) for t in turns])
            if len(positions):
                ids = np.concatenate([prompts[end - 1], responses[end - 1]])
                samples.append(Sample(ids, positions, np.arange(offsets[start], offsets[end]), index))
        first_token = int(offsets[-1])
    return samples


def _conversations(prompts: Sequence[Ids], responses: Sequence[Ids]) -> list[tuple[int, int]]:
    """Return the turns, as ``start, end``, of each run in which every prompt extends what came before."""
    starts = [t for t in range(len(prompts)) if t == 0 or not _extends(prompts[t], prompts[t - 1], responses[t - 1])]
    return list(zip(starts, [*starts[1:], len(prompts)], strict=True)) if starts else []


def _extends(prompt: Ids, *past: Ids) -> bool:
    """Tell whether a prompt begins with the parts of the past, one after the other."""
    start = 0
    for part in past:
        if not np.array_equal(prompt[start : start + len(part)], part):
            return False
        start += len(part)
    return True


def token_place(trajectories: Sequence[Trajectory], token: int) -> str:
    """Return the rollout and turn of a token by name, for error messages; rollouts are counted within their group.

    Args:
        trajectories: The rollouts that the token axis runs over.
        token: Index on the token axis.

    Returns:
        Such as ``rollout 3:level-17/5, turn 2``.
    """
    turns = [(index, number) for index, t in enumerate(trajectories) for number in range(len(t.turns))]
    ends = np.cumsum([len(turn.response_ids) for t in trajectories for turn in t.turns])
    return _place(trajectories, *turns[int(np.searchsorted(ends, token, side="right"))])


def _place(trajectories: Sequence[Trajectory], index: int, turn: int) -> str:
    group = trajectories[index].group_id
    member = sum(earlier.group_id == group for earlier in trajectories[:index])
    return f"rollout {group}/{member}, turn {turn}"
