"""OPSD: which tokens it distils, and what it leaves to the trainer."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.opsd import opsd
from agentbench_credit.errors import ConfigError, CreditInputError
from references.distillation import taught_weights


@given(references.worlds(), st.integers(0, 99), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=40)
def test_reference(world: references.World, seed: int, share: float) -> None:
    rng = random.Random(seed)
    taught = [[[rng.random() < share for _ in rollout.rewards] for rollout in group] for group in world]
    batch = references.build(world)
    batch = replace(batch, signals={"taught": np.array(references.flat(taught), dtype=float)})
    credit = opsd(batch)
    expected = references.flat(taught_weights(world, taught))
    assert credit.distillation is not None
    np.testing.assert_array_equal(credit.distillation.weights, expected)
    assert credit.level == "trajectory"
    assert not credit.values.any()
    included = [
        (rollout, flags)
        for group, many in zip(world, taught, strict=True)
        for rollout, flags in zip(group, many, strict=True)
        if rollout.counts
    ]
    assert credit.diagnostics["untaught_rollouts"] == sum(not any(flags) for _, flags in included)
    tokens = sum(len(turn) for rollout, _ in included for turn in rollout.tokens)
    assert credit.diagnostics["distilled_token_share"] == pytest.approx(sum(expected) / max(tokens, 1))


def test_the_loss_is_that_of_the_paper() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 1.0]]], tokens_per_turn=2, signals={"taught": [1.0, 0.0]})
    found = opsd(batch).distillation
    assert found is not None
    assert found.weights.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert (found.token_clip, found.top_k, found.ratio_clip, found.teacher_decay) == (0.05, None, None, None)
    unbounded = opsd(batch, token_clip=math.inf).distillation
    assert unbounded is not None
    assert unbounded.token_clip is None
    with pytest.raises(ConfigError, match="token_clip is 0"):
        opsd(batch, token_clip=0.0)
    assert (opsd.teacher, opsd.signals_for({})) == ("reference", ("taught",))


def test_a_batch_that_does_not_know_who_was_taught_is_refused() -> None:
    with pytest.raises(CreditInputError, match="no signal taught"):
        opsd(CreditBatch.from_rewards([[[1.0]]]))
