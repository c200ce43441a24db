"""Samples: which turns become one sequence, and that every sampled token is in exactly one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.errors import TrainingError
from agentbench_credit.samples import Sample, build_samples, token_place
from handmade import make_trajectory, make_turn, random_trajectories


def content(sample: Sample) -> tuple[list[int], list[int], list[int], int]:
    return sample.ids.tolist(), sample.positions.tolist(), sample.tokens.tolist(), sample.trajectory


def test_turns_that_extend_each_other_become_one_sequence() -> None:
    turns = [make_turn([1, 2], [3, 4]), make_turn([1, 2, 3, 4, 5], [6]), make_turn([1, 2, 3, 4, 5, 6], [7, 8])]
    samples = build_samples([make_trajectory(turns)])
    assert [content(s) for s in samples] == [([1, 2, 3, 4, 5, 6, 7, 8], [2, 3, 5, 6, 7], [0, 1, 2, 3, 4], 0)]


def test_turns_with_prompts_of_their_own_fork() -> None:
    first = make_trajectory([make_turn([1, 2], [3]), make_turn([1, 9], [4, 5])])
    second = make_trajectory([make_turn([7], [8, 9])])
    samples = build_samples([first, second])
    assert [content(s) for s in samples] == [
        ([1, 2, 3], [2], [0], 0),
        ([1, 9, 4, 5], [2, 3], [1, 2], 0),
        ([7, 8, 9], [1, 2], [3, 4], 1),
    ]


def test_a_template_that_drops_earlier_reasoning_forks_and_the_conversation_goes_on() -> None:
    # 50 51 52 is the reasoning of the first answer; the second prompt shows the answer without it, the third keeps all.
    turns = [
        make_turn([1, 2], [50, 51, 52, 3]),
        make_turn([1, 2, 3, 4], [50, 5]),
        make_turn([1, 2, 3, 4, 50, 5, 6], [7]),
    ]
    samples = build_samples([make_trajectory(turns)])
    assert [content(s) for s in samples] == [
        ([1, 2, 50, 51, 52, 3], [2, 3, 4, 5], [0, 1, 2, 3], 0),
        ([1, 2, 3, 4, 50, 5, 6, 7], [4, 5, 7], [4, 5, 6], 0),
    ]


def test_a_prompt_that_is_only_the_past_cut_short_forks() -> None:
    turns = [make_turn([1, 2], [3, 4]), make_turn([1, 2, 3], [5])]
    assert len(build_samples([make_trajectory(turns)])) == 2


def test_the_teacher_sees_its_own_prompts_and_plain_ones_where_there_is_none() -> None:
    turns = [make_turn([1], [2], teacher=[8, 1]), make_turn([1, 2, 3], [4]), make_turn([5], [6], teacher=[8, 5])]
    samples = build_samples([make_trajectory(turns)], teacher=True)
    assert [content(s) for s in samples] == [
        ([8, 1, 2], [2], [0], 0),
        ([1, 2, 3, 4], [3], [1], 0),
        ([8, 5, 6], [2], [2], 0),
    ]
    assert len(build_samples([make_trajectory(turns)])) == 2


def test_empty_things() -> None:
    assert build_samples([]) == []
    assert build_samples([make_trajectory([], state="error"), make_trajectory([make_turn([1], [])])]) == []
    silent_first = make_trajectory([make_turn([1], []), make_turn([1, 2], [3])])
    assert [content(s) for s in build_samples([make_trajectory([]), silent_first])] == [([1, 2, 3], [2], [0], 1)]


def test_a_response_without_a_prompt_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"rollout g/1, turn 1: a response without a prompt"):
        build_samples([make_trajectory([]), make_trajectory([make_turn([1], [2]), make_turn([], [3])])])


@given(seed=st.integers(0, 2**32), conversation=st.booleans(), teacher=st.booleans())
def test_every_token_is_in_one_sample_behind_its_own_prompt(seed: int, conversation: bool, teacher: bool) -> None:
    trajectories = random_trajectories(np.random.default_rng(seed), 5, conversation=conversation, teacher=True)
    expected = []
    for index, trajectory in enumerate(trajectories):
        for turn in trajectory.turns:
            shown = turn.teacher_prompt_ids if teacher and turn.teacher_prompt_ids is not None else turn.prompt_ids
            expected += [(index, [*shown, *turn.response_ids[: j + 1]]) for j in range(len(turn.response_ids))]
    found = {}
    for sample in build_samples(trajectories, teacher):
        assert sample.ids.dtype == np.int32
        for position, token in zip(sample.positions, sample.tokens, strict=True):
            assert token not in found
            found[int(token)] = (sample.trajectory, sample.ids[: position + 1].tolist())
    assert found == dict(enumerate(expected))


def test_token_place_counts_rollouts_within_their_group() -> None:
    trajectories = [
        make_trajectory([make_turn([1], [2, 3])], group="a"),
        make_trajectory([make_turn([1], [])], group="b"),
        make_trajectory([], group="b"),
        make_trajectory([make_turn([1], [2]), make_turn([1], []), make_turn([1], [2, 2])], group="b"),
    ]
    names = ["rollout a/0, turn 0"] * 2 + ["rollout b/2, turn 0"] + ["rollout b/2, turn 2"] * 2
    assert [token_place(trajectories, k) for k in range(5)] == names
