"""What happens around every call of a credit method."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from agentbench_credit.batch import CreditBatch, Floats, Level
from agentbench_credit.credit import METHODS, Credit, CreditMethod, credit_method
from agentbench_credit.credit.method import Distillation, SignalName
from agentbench_credit.errors import CreditInputError
from agentbench_credit.registry import Registry


def returning(values: Floats, level: Level, **diagnostics: Any) -> CreditMethod:
    @credit_method("own", paper="1234.56789", evidence="abstract", summary="a test")
    def own(_: CreditBatch) -> Credit:
        return Credit(values, level, diagnostics=diagnostics)

    return own


def penalised_batch() -> CreditBatch:
    """Three rollouts, two tokens a turn; the second turn of the first costs 0.25; the last has no reward."""
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [0.0], [None]]], tokens_per_turn=2)
    return replace(batch, penalty=np.array([0.0, -0.25, 0.0, 0.0]), penalty_in_reward=False)


def test_a_penalty_outside_the_reward_spreads_trajectory_values_over_turns() -> None:
    credit = returning(np.array([1.0, -1.0, 9.0]), "trajectory")(penalised_batch())
    assert credit.level == "turn"
    assert credit.values.tolist() == [1.0, 0.75, -1.0, 0.0]
    assert credit.per_token(penalised_batch()).tolist() == [1.0, 1.0, 0.75, 0.75, -1.0, -1.0, 0.0, 0.0]


def test_a_penalty_outside_the_reward_lands_on_its_turn_and_its_tokens() -> None:
    turn = returning(np.array([1.0, 2.0, 3.0, 9.0]), "turn")(penalised_batch())
    assert (turn.level, turn.values.tolist()) == ("turn", [1.0, 1.75, 3.0, 0.0])
    token = returning(np.arange(8.0), "token")(penalised_batch())
    assert (token.level, token.values.tolist()) == ("token", [0.0, 1.0, 1.75, 2.75, 4.0, 5.0, 0.0, 0.0])


def test_a_penalty_outside_the_reward_is_not_normalised() -> None:
    batch = penalised_batch()
    plain = METHODS.get("grpo")(replace(batch, penalty_in_reward=True, penalty=np.zeros(4)))
    expected = plain.values[batch.trajectory_of_turn] + [0.0, -0.25, 0.0, 0.0]
    assert METHODS.get("grpo")(batch).values == pytest.approx(expected, abs=0)


def test_a_penalty_inside_the_reward_changes_nothing_afterwards() -> None:
    batch = replace(penalised_batch(), penalty_in_reward=True)
    credit = returning(np.array([1.0, -1.0, 9.0]), "trajectory")(batch)
    assert (credit.level, credit.values.tolist()) == ("trajectory", [1.0, -1.0, 0.0])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 1.0], r"own: returned distillation weights of shape \(2,\), expected \(3,\)"),
        ([1.0, -0.5, 1.0], r"own, .*rollout .*: a distillation weight is -0.5"),
        ([1.0, 1.0, math.nan], r"own, .*rollout .*: a distillation weight is nan"),
    ],
)
def test_weights_that_a_distillation_cannot_have_are_refused(weights: list[float], message: str) -> None:
    @credit_method("own", paper="1234.56789", evidence="abstract", summary="a test")
    def own(batch: CreditBatch) -> Credit:
        return Credit(np.zeros(batch.n_trajectories), "trajectory", distillation=Distillation(np.array(weights)))

    with pytest.raises(CreditInputError, match=message):
        own(CreditBatch.from_rewards([[[0.0, 0.0, 1.0]]], tokens_per_turn=1))


def test_a_missing_signal_is_named() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], signals={"kl": [0.0, 0.0]})
    with pytest.raises(CreditInputError, match="gear: the batch has no signal entropy, teacher_logp —"):
        METHODS.get("gear")(batch, weight="log_ratio")


@pytest.mark.parametrize(
    ("level", "index", "place"),
    [("trajectory", 1, "rollout 0/1$"), ("turn", 1, "rollout 0/0, turn 1$"), ("token", 5, "rollout 0/1, turn 0$")],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_result_that_is_not_finite_is_refused_by_name(level: Level, index: int, place: str, value: float) -> None:
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [0.0]]], tokens_per_turn=2)
    values = np.zeros(batch.size(level))
    values[index] = value
    with pytest.raises(CreditInputError) as caught:
        returning(values, level)(batch)
    assert caught.value.what == "the advantage is not finite"
    assert caught.value.where.startswith("own, ")
    assert caught.value.where.endswith(place.removesuffix("$"))


@pytest.mark.parametrize("name", METHODS.names())
def test_rewards_whose_squares_would_overflow_are_refused_and_all_others_are_not(name: str) -> None:
    with pytest.raises(CreditInputError, match=r"rollout 0/1, turn 0: reward is -1e\+101"):
        CreditBatch.from_rewards([[[1.0], [-1e101]]])
    signals = {signal: np.full(2, 0.5) for signal in get_args(SignalName)}
    batch = CreditBatch.from_rewards([[[1e100], [-1e100]]], signals=signals)
    assert np.isfinite(METHODS.get(name)(batch).values).all()


def test_value_targets_are_checked() -> None:
    def aiming(targets: list[float]) -> CreditMethod:
        @credit_method("own", paper="1234.56789", evidence="abstract", summary="a test")
        def own(batch: CreditBatch) -> Credit:
            return Credit(np.zeros(batch.n_turns), "turn", value_targets=np.array(targets))

        return own

    batch = CreditBatch.from_rewards([[[0.0, 1.0], [None]]])
    assert aiming([0.0, 0.0, math.nan])(batch).value_targets is not None, "excluded rollouts have none"
    with pytest.raises(CreditInputError, match=r"own, rollout 0/0, turn 1: a value target is nan"):
        aiming([0.0, math.nan, 0.0])(batch)
    with pytest.raises(CreditInputError, match=r"own: returned value targets of shape \(2,\), expected \(3,\)"):
        aiming([0.0, 0.0])(batch)


def test_a_wrong_shape_is_refused() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [0.0]]])
    with pytest.raises(CreditInputError, match=r"own: returned shape \(2,\), expected \(3,\)"):
        returning(np.zeros(2), "turn")(batch)


def test_diagnostics_of_every_method() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0], [None]], [[0.3], [0.1, 0.2]], [[5.0]], [[None], [None]]])
    found = returning(np.zeros(8), "trajectory", own=7)(batch).diagnostics
    assert found == {
        "reconstruction": True,
        "rollouts": 8,
        "excluded_rollouts": 3,
        "groups": 4,
        "group_size_min": 0,
        "group_size_max": 2,
        "zero_signal_groups": 3,
        "groups_without_credit": 4,
        "own": 7,
    }


def test_groups_that_get_no_advantage_are_counted() -> None:
    batch = CreditBatch.from_rewards([[[1.0], [0.0]], [[1.0], [1.0]]], tokens_per_turn=2)
    for level, values in (("trajectory", [0, 2, 0, 0]), ("turn", [0, 2, 0, 0]), ("token", [0, 0, 0, 2, 0, 0, 0, 0])):
        found = returning(np.array(values, float), level)(batch).diagnostics
        assert found["groups_without_credit"] == 1


def test_the_share_of_taught_turns_is_said_of_methods_with_a_teacher() -> None:
    signals = {"teacher_logp": [0.0] * 4, "taught": [1.0, 0.0, 0.0, 1.0]}
    batch = CreditBatch.from_rewards([[[1.0, 0.0], [0.0], [None]]], signals=signals)
    assert METHODS.get("rlsd")(batch).diagnostics["taught_share"] == 1 / 3
    assert "taught_share" not in METHODS.get("grpo")(batch).diagnostics


def test_group_sizes_are_those_of_valid_rollouts() -> None:
    found = METHODS.get("grpo")(CreditBatch.from_rewards([[[1.0]] * 3, [[1.0]] * 5])).diagnostics
    assert (found["group_size_min"], found["group_size_max"]) == (3, 5)
    assert found["reconstruction"] is False


def test_gear_is_a_reconstruction_and_the_others_are_read_in_code() -> None:
    assert METHODS.get("gear").is_reconstruction
    assert {METHODS.get(name).evidence for name in ("grpo", "rloo", "gigpo", "rlsd")} == {"code"}


def test_an_empty_batch_gives_empty_credit() -> None:
    empty = CreditBatch.from_rewards([], signals={"kl": [], "entropy": [], "teacher_logp": []})
    for name in ("grpo", "rloo", "gigpo", "rlsd", "gear"):
        credit = METHODS.get(name)(empty)
        assert credit.values.shape == (0,)
        assert (credit.diagnostics["groups"], credit.diagnostics["group_size_min"]) == (0, 0)


def test_params_are_the_keyword_arguments_with_their_defaults() -> None:
    assert METHODS.get("grpo").params == {"ddof": 1, "eps": 1e-6, "baseline_over": "trajectory"}
    assert METHODS.get("gigpo").params["gamma"] == 0.95
    assert METHODS.get("gear").params["anchor_quantile"] == 0.9


def test_a_method_of_ones_own_can_be_registered() -> None:
    registry: Registry[CreditMethod] = Registry("credit method", "no.such.group", base=CreditMethod)
    own = returning(np.zeros(1), "trajectory")
    registry.register("own", own)
    assert registry.get("own") is own
