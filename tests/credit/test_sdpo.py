"""SDPO: which tokens it distils, and what it leaves to the trainer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.opsd import opsd
from agentbench_credit.credit.sdpo import sdpo
from agentbench_credit.errors import ConfigError


@given(references.worlds())
@settings(max_examples=20)
def test_the_tokens_are_those_of_opsd(world: references.World) -> None:
    batch = references.build(world)
    taught = np.arange(batch.n_turns) % 2.0
    batch = replace(batch, signals={"taught": taught})
    one, other = sdpo(batch), opsd(batch)
    assert one.distillation is not None
    assert other.distillation is not None
    np.testing.assert_array_equal(one.distillation.weights, other.distillation.weights)
    assert one.diagnostics == other.diagnostics
    assert not one.values.any()


def test_a_rollout_without_sibling_and_feedback_is_left_out_and_counted() -> None:
    rewards: list[list[list[float | None]]] = [[[0.0, 1.0], [0.0], [None]]]
    batch = CreditBatch.from_rewards(rewards, tokens_per_turn=2, signals={"taught": [1.0, 1.0, 0.0, 1.0]})
    credit = sdpo(batch)
    assert credit.distillation is not None
    assert credit.distillation.weights.tolist() == [1.0] * 4 + [0.0] * 4
    assert credit.diagnostics["untaught_rollouts"] == 1
    assert credit.diagnostics["distilled_token_share"] == pytest.approx(4 / 6)
    assert credit.diagnostics["taught_share"] == pytest.approx(2 / 3)


def test_the_loss_is_that_of_the_paper() -> None:
    batch = CreditBatch.from_rewards([[[1.0]]], signals={"taught": [1.0]})
    found = sdpo(batch).distillation
    assert found is not None
    assert (found.token_clip, found.top_k, found.ratio_clip, found.teacher_decay) == (None, 100, 2.0, 0.05)
    other = sdpo(batch, top_k=7, ratio_clip=math.inf, teacher_decay=1.0).distillation
    assert other is not None
    assert (other.top_k, other.ratio_clip, other.teacher_decay) == (7, math.inf, 1.0)
    assert (sdpo.teacher, sdpo.signals_for({})) == ("feedback", ("taught",))


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"ratio_clip": 0.0}, {"teacher_decay": 1.5}, {"token_clip": 1.0}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        sdpo(CreditBatch.from_rewards([[[1.0]]], signals={"taught": [1.0]}), **wrong)
