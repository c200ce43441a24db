"""Generation without turns: requests that come at any time, prompts and beginnings computed once, a bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from agentbench_credit.policy import prefixes
from agentbench_credit.policy.base import Request, Response, Sampling, generate
from agentbench_credit.policy.prefixes import BLOCK, Prefix, Prefixes
from agentbench_credit.policy.transformers import TransformersPolicy
from models import small_model, small_tokenizer

SAMPLING = Sampling(max_new_tokens=9)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def policy() -> TransformersPolicy:
    return TransformersPolicy(small_model(), small_tokenizer(), "small")


def prompt(n: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return RNG.integers(10, 250, n).astype(np.int32)


def request(ids: np.ndarray[tuple[int], np.dtype[np.int32]], seed: int = 0, *, continues: bool = False) -> Request:
    return Request(ids, seed, None, list, continues=continues)  # type: ignore[arg-type]


def alone(policy: TransformersPolicy, asked: Request) -> Response:
    (answer,) = generate(policy, [asked], SAMPLING)
    assert answer is not None
    return answer


def assert_same(answer: object, other: Response) -> None:
    assert isinstance(answer, Response)
    np.testing.assert_array_equal(answer.ids, other.ids)
    np.testing.assert_allclose(answer.logprobs, other.logprobs, atol=1e-4)
    assert answer.finish_reason == other.finish_reason


@contextmanager
def counted(policy: TransformersPolicy) -> Iterator[list[int]]:
    """Count the tokens of each forward pass that is longer than one token a row."""
    counts: list[int] = []

    def note(_: object, args: tuple[torch.Tensor, ...]) -> None:
        if args[0].shape[1] > 1:
            counts.append(args[0].numel())

    handle = policy.model.register_forward_pre_hook(note)
    try:
        yield counts
    finally:
        handle.remove()


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_requests_that_come_at_any_time_are_answered_as_if_alone(policy: TransformersPolicy, slots: int) -> None:
    asked = [request(prompt(int(n)), seed, continues=seed % 2 == 0) for seed, n in enumerate(RNG.integers(1, 80, 40))]
    some = TransformersPolicy(policy.model, policy.tokenizer, "small", slots=slots)
    stream, left, answers = some.stream(SAMPLING), list(asked), {}
    while left or len(answers) < len(asked):
        for each in left[: 1 + len(answers) % 4]:
            stream.add(each)
        left = left[1 + len(answers) % 4 :]
        answers |= {id(each): answer for each, answer in stream.collect()}
    assert stream.collect() == []
    for each in asked:
        assert_same(answers[id(each)], alone(policy, each))


def test_identical_prompts_are_computed_once(policy: TransformersPolicy) -> None:
    ids = prompt(50)
    group = [request(ids, seed) for seed in range(8)]
    with counted(policy) as counts:
        answers = generate(policy, group, SAMPLING)
    assert counts == [50]
    for each, answer in zip(group, answers, strict=True):
        assert_same(answer, alone(policy, each))
    assert len({answer.ids.tobytes() for answer in answers if answer}) > 1, "each with random numbers of its own"


def test_a_beginning_that_all_share_is_computed_once(policy: TransformersPolicy) -> None:
    common = prompt(64)
    asked = [request(np.concatenate([common, prompt(5)]), seed) for seed in range(6)]
    with counted(policy) as counts:
        answers = generate(policy, asked, SAMPLING)
    assert counts == [64, 6 * 5]
    for each, answer in zip(asked, answers, strict=True):
        assert_same(answer, alone(policy, each))


@pytest.mark.parametrize("continues", [True, False])
def test_a_conversation_is_not_computed_again(policy: TransformersPolicy, continues: bool) -> None:
    stream, ids, played = policy.stream(SAMPLING), prompt(40), []
    with counted(policy) as counts:
        for turn in range(4):
            stream.add(request(ids, turn, continues=continues))
            ((asked, answer),) = stream.collect()
            assert isinstance(answer, Response)
            played.append((asked, answer))
            ids = np.concatenate([ids, answer.ids, prompt(7)])
    # The last token that was drawn has not been through the model: it comes with the next observation.
    assert counts == ([40, 8, 8, 8] if continues else [len(asked.prompt_ids) for asked, _ in played])
    for asked, answer in played:
        assert_same(answer, alone(policy, asked))


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.zeros(2, 1, 3 * BLOCK, 4)
    monkeypatch.setattr(prefixes, "BUDGET", 3 * states.nbytes)
    kept = Prefixes()
    sequences = [prompt(3 * BLOCK) for _ in range(4)]
    for ids in sequences[:3]:
        kept.keep(Prefix(ids, states))
    assert kept.find(np.append(sequences[0], 1).astype(np.int32)) is not None  # used: no longer the oldest
    kept.keep(Prefix(sequences[3], states))
    found = [kept.find(np.append(ids, 1).astype(np.int32)) for ids in sequences]
    assert [each is not None for each in found] == [True, False, True, True]
    assert [each[1] for each in found if each] == [3 * BLOCK] * 3


def test_a_known_beginning_ends_where_the_prompts_differ_and_leaves_one_token_to_compute() -> None:
    ids = prompt(3 * BLOCK)
    kept = Prefixes()
    kept.keep(Prefix(ids, torch.zeros(2, 1, len(ids), 4)))
    other = ids.copy()
    other[BLOCK + 3] += 1
    lengths = [found and found[1] for found in map(kept.find, (ids, other, ids[: BLOCK + 1], ids[:BLOCK], prompt(60)))]
    assert lengths == [3 * BLOCK - 1, BLOCK + 3, BLOCK, None, None]
