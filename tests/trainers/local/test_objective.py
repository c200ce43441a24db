"""The objective against a loop, worked numbers, and what must not change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.batch import CreditBatch
from agentbench_credit.trainers.local.objective import PolicyLoss, policy_loss, ratio_segments, token_weights

CLIP: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0, "kl_coefficient": 0.0}


def loss_of(
    logp: Sequence[float],
    behaviour: Sequence[float],
    advantages: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    segments: Sequence[int] | None = None,
    reference: Sequence[float] | None = None,
    **overrides: Any,
) -> tuple[PolicyLoss, list[float]]:
    """Return the loss in double precision and the gradient of the log-probabilities."""
    leaf = torch.tensor(logp, dtype=torch.float64, requires_grad=True)

    def numbers(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    parts = policy_loss(
        leaf,
        numbers(behaviour),
        numbers(advantages),
        numbers(weights or [1.0] * len(logp)),
        torch.tensor(segments or range(len(logp)), dtype=torch.long),
        None if reference is None else numbers(reference),
        **(CLIP | overrides),
    )
    (gradient,) = torch.autograd.grad(parts.loss, [leaf])
    return PolicyLoss(*(part.detach() for part in parts)), gradient.tolist()


def loop_reference(
    logp: Sequence[float],
    behaviour: Sequence[float],
    advantages: Sequence[float],
    weights: Sequence[float],
    segments: Sequence[int],
    reference: Sequence[float],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
    kl_coefficient: float,
) -> tuple[float, list[float]]:
    """Return loss and gradient token by token, each case of the clipping spelled out."""
    total, gradient = 0.0, []
    for j in range(len(logp)):
        members = [k for k in range(len(logp)) if segments[k] == segments[j]]
        ratio = math.exp(sum(logp[k] - behaviour[k] for k in members) / len(members))
        a = advantages[j]
        if a >= 0 and ratio > 1 + clip_high:
            value, slope = -(1 + clip_high) * a, 0.0
        elif a < 0 and ratio < 1 - clip_low:
            value, slope = -(1 - clip_low) * a, 0.0
        elif a < 0 and dual_clip is not None and ratio > dual_clip:
            value, slope = -dual_clip * a, 0.0
        else:
            value, slope = -ratio * a, -ratio * a
        d = reference[j] - logp[j]
        total += weights[j] * (value + kl_coefficient * (math.exp(d) - d - 1))
        gradient.append(weights[j] * (slope + kl_coefficient * (1 - math.exp(d))))
    return total, gradient


numbers = st.floats(-2.0, 2.0)


@given(
    tokens=st.lists(st.tuples(numbers, numbers, numbers, st.floats(0, 1), st.integers(0, 3), numbers), max_size=12),
    dual_clip=st.sampled_from([None, 1.5, 3.0]),
    kl_coefficient=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_equal_to_the_loop(tokens: list[tuple[float, ...]], dual_clip: float | None, kl_coefficient: float) -> None:
    columns: list[Any] = [list(column) for column in zip(*tokens, strict=True)] or [[] for _ in range(6)]
    columns[4] = np.unique(columns[4], return_inverse=True)[1].tolist()
    logp, behaviour, advantages, weights, segments, reference = columns
    settings: dict[str, Any] = dict(clip_low=0.2, clip_high=0.3, dual_clip=dual_clip, kl_coefficient=kl_coefficient)
    expected, slopes = loop_reference(logp, behaviour, advantages, weights, segments, reference, **settings)
    parts, gradient = loss_of(
        logp, behaviour, advantages, weights=weights, segments=segments, reference=reference, **settings
    )
    assert float(parts.loss) == pytest.approx(expected, abs=1e-9)
    assert gradient == pytest.approx(slopes, abs=1e-9)


def test_at_the_behaviour_policy_the_gradient_is_minus_advantage_times_grad_logp() -> None:
    logp, advantages = [-0.1, -2.0, -0.7, -3.0], [1.5, -0.5, 0.0, 2.0]
    for segments in ([0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 0, 0]):
        parts, gradient = loss_of(logp, logp, advantages, segments=segments, weights=[0.25] * 4)
        assert float(parts.loss) == pytest.approx(-3.0 / 4)
        assert gradient == pytest.approx([-a / 4 for a in advantages])
        assert (float(parts.clipped), float(parts.ratio), float(parts.approx_kl)) == (0.0, 4.0, 0.0)


def test_ratios_of_tokens_turns_and_sequences() -> None:
    # Three tokens, the first two of one turn: Δ = log 1.1, log 0.9, log 1.2.
    delta = [math.log(1.1), math.log(0.9), math.log(1.2)]
    by_token, _ = loss_of(delta, [0.0] * 3, [1.0] * 3)
    assert float(by_token.ratio) == pytest.approx(1.1 + 0.9 + 1.2)
    by_turn, _ = loss_of(delta, [0.0] * 3, [1.0] * 3, segments=[0, 0, 1])
    assert float(by_turn.ratio) == pytest.approx(2 * math.sqrt(1.1 * 0.9) + 1.2)
    by_sequence, gradient = loss_of(delta, [0.0] * 3, [1.0] * 3, segments=[0, 0, 0])
    geometric_mean = (1.1 * 0.9 * 1.2) ** (1 / 3)
    assert float(by_sequence.ratio) == pytest.approx(3 * geometric_mean)
    assert float(by_sequence.loss) == pytest.approx(-3 * geometric_mean)
    # For equal advantages this is the gradient of −3·(geometric mean).
    assert gradient == pytest.approx([-geometric_mean] * 3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "loss", "clipped"),
    [
        (1.5, 2.0, 3.0, -1.2 * 2.0, 1),
        (0.5, 2.0, 3.0, -0.5 * 2.0, 0),
        (0.5, -2.0, 3.0, 0.8 * 2.0, 1),
        (2.5, -2.0, 3.0, 2.5 * 2.0, 0),
        (5.0, -2.0, 3.0, 3.0 * 2.0, 1),
        (5.0, -2.0, None, 5.0 * 2.0, 0),
        (5.0, 2.0, 3.0, -1.2 * 2.0, 1),
    ],
)
def test_clip_and_dual_clip(ratio: float, advantage: float, dual_clip: float | None, loss: float, clipped: int) -> None:
    parts, gradient = loss_of([math.log(ratio)], [0.0], [advantage], dual_clip=dual_clip)
    assert float(parts.loss) == pytest.approx(loss)
    assert float(parts.clipped) == clipped
    assert gradient == pytest.approx([0.0 if clipped else -ratio * advantage])


@given(logp=numbers, reference=numbers)
def test_k3_is_zero_at_the_reference_and_positive_elsewhere(logp: float, reference: float) -> None:
    parts, _ = loss_of([logp], [logp], [0.0], reference=[reference], kl_coefficient=0.5)
    k3 = float(parts.reference_kl)
    assert k3 >= 0
    assert k3 == pytest.approx(math.exp(reference - logp) - (reference - logp) - 1)
    assert float(parts.loss) == pytest.approx(0.5 * k3)
    assert float(loss_of([logp], [logp], [0.0], reference=[logp], kl_coefficient=0.5)[0].loss) == 0.0


def test_no_tokens_give_exact_zeros() -> None:
    parts, gradient = loss_of([], [], [], reference=[])
    assert [float(part) for part in parts] == [0.0] * 5
    assert gradient == []


def test_weights_of_the_three_aggregations() -> None:
    # Rollouts with 2·3, 1·3, and 3·3 tokens; the third has no valid reward.
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [1.0], [0.0, None, 0.0]], [[2.0]]], tokens_per_turn=3)
    everyone = np.arange(4)
    expected = {
        "token-mean": [1 / 12] * 6 + [1 / 12] * 3 + [0] * 9 + [1 / 12] * 3,
        "sequence-mean": [1 / 18] * 6 + [1 / 9] * 3 + [0] * 9 + [1 / 9] * 3,
        "constant": [1 / 30] * 6 + [1 / 30] * 3 + [0] * 9 + [1 / 30] * 3,
    }
    aggregations: list[Any] = list(expected)
    for aggregation in aggregations:
        np.testing.assert_allclose(token_weights(batch, everyone, aggregation, 10), expected[aggregation])
    some = token_weights(batch, np.array([1, 2]), "token-mean", 10)
    np.testing.assert_allclose(some, [0] * 6 + [1 / 3] * 3 + [0] * 12)
    assert not token_weights(batch, np.array([2]), "token-mean", 10).any()
    assert not token_weights(batch, np.array([], dtype=np.int64), "sequence-mean", 10).any()


def test_excluded_rollouts_and_those_without_tokens_are_in_no_denominator() -> None:
    rewards = [[[1.0], [0.0]]]
    plain = CreditBatch.from_rewards(rewards, tokens_per_turn=2)
    more = CreditBatch.from_rewards([[[1.0], [None], [0.0], []]], tokens_per_turn=2)
    aggregations: list[Any] = ["token-mean", "sequence-mean", "constant"]
    for aggregation in aggregations:
        alone = token_weights(plain, np.arange(2), aggregation, 7)
        beside = token_weights(more, np.arange(4), aggregation, 7)
        np.testing.assert_array_equal(beside, [*alone[:2], 0, 0, *alone[2:]])


def test_segments() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [1.0]]], tokens_per_turn=2)
    tokens = np.array([1, 2, 3, 4, 5])
    assert ratio_segments(batch, tokens, "token").tolist() == [0, 1, 2, 3, 4]
    assert ratio_segments(batch, tokens, "turn").tolist() == [0, 1, 1, 2, 2]
    assert ratio_segments(batch, tokens, "sequence").tolist() == [0, 0, 0, 1, 1]
