"""GEAR against its loop reference and the identities of its reconstruction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

GEAR, GRPO, RLSD = METHODS.get("gear"), METHODS.get("grpo"), METHODS.get("rlsd")
WEIGHTS = ["directional", "magnitude", "log_ratio"]
QUANTILES = st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.9, 1.0, math.inf])
PARAMS = st.fixed_dictionaries(
    {
        "kl": st.sampled_from(["full", "topk", "sampled"]),
        "weight": st.sampled_from(WEIGHTS),
        "segments": st.sampled_from(["entropy", "fixed"]),
        "segment_length": st.integers(1, 4),
        "segment_value": st.sampled_from(["anchor", "mean"]),
        "anchor_quantile": QUANTILES,
        "anchor_floor": st.sampled_from([0.0, 0.05, 0.2, math.inf]),
        "entropy_quantile": QUANTILES,
        "epsilon": st.sampled_from([0.0, 0.2, 0.9]),
        "temperature": st.sampled_from([0.1, 1.0]),
        "c": st.sampled_from([0.0, 1.0, 10.0]),
        "mean_preserving": st.booleans(),
        "ddof": st.sampled_from([0, 1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), PARAMS)
@settings(max_examples=150)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = GEAR(references.build(world), **params)
    assert credit.level == "token"
    np.testing.assert_allclose(credit.values, references.flat(references.gear(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds(), st.sampled_from(WEIGHTS), st.booleans())
@settings(max_examples=40)
def test_a_teacher_that_learns_nothing_gives_exactly_grpo(world: references.World, weight: str, mean: bool) -> None:
    for token in (token for group in world for rollout in group for turn in rollout.tokens for token in turn):
        token.update(kl=0.0, teacher_logp=token["logp"])
    batch = references.build(world)
    credit = GEAR(batch, weight=weight, mean_preserving=mean, anchor_floor=0.0)
    np.testing.assert_array_equal(credit.values, GRPO(batch).per_token(batch))


@given(references.worlds(), PARAMS)
@settings(max_examples=60)
def test_mean_preserving_weights_leave_each_response_its_sum(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    values = GEAR(batch, **params | {"mean_preserving": True}).values
    base = GRPO(batch, ddof=params["ddof"], baseline_over=params["baseline_over"]).values[batch.trajectory_of_turn]
    sums = np.bincount(batch.turn_of_token, values, batch.n_turns)
    np.testing.assert_allclose(sums, base * batch.token_counts, rtol=0, atol=1e-9)


@given(references.worlds(), PARAMS)
@settings(max_examples=60)
def test_no_advantage_changes_its_sign(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    base = GRPO(batch, ddof=params["ddof"], baseline_over=params["baseline_over"]).per_token(batch)
    np.testing.assert_array_equal(np.sign(GEAR(batch, **params).values), np.sign(base))


@given(references.worlds())
@settings(max_examples=40)
def test_single_token_segments_with_log_ratio_are_rlsd(world: references.World) -> None:
    """Every token ends a segment (entropy at or above its 0-quantile), so a segment is its anchor."""
    batch = references.build(world)
    credit = GEAR(batch, weight="log_ratio", mean_preserving=False, entropy_quantile=0.0)
    assert credit.diagnostics["segment_length_max"] <= 1
    np.testing.assert_array_equal(credit.values, RLSD(batch, mu=1.0).values)


@pytest.mark.parametrize("infinite", ["anchor_quantile", "anchor_floor"])
@given(world=references.worlds())
@settings(max_examples=20)
def test_an_infinite_anchor_threshold_is_purely_token_level(infinite: str, world: references.World) -> None:
    batch = references.build(world)
    credit = GEAR(batch, mean_preserving=False, **{infinite: math.inf})
    assert credit.diagnostics["anchors"] == 0
    base = GRPO(batch).per_token(batch)
    kl = batch.signals["kl"]
    for j in range(batch.n_tokens):
        turn = batch.turn_of_token[j]
        excess = kl[j] - np.mean(kl[batch.token_offsets[turn] : batch.token_offsets[turn + 1]])
        weight = np.clip(np.exp(-np.sign(base[j]) * excess), 0.8, 1.2)
        assert credit.values[j] == pytest.approx(base[j] * weight, abs=1e-9)


def test_an_infinite_entropy_threshold_runs_segments_to_the_end_of_the_turn() -> None:
    kl = [0.0, 1.0, 0.0, 2.0, 0.0, 0.0]
    signals = {"kl": kl * 2, "entropy": [9.0] * 12, "teacher_logp": [0.0] * 12}
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], tokens_per_turn=6, signals=signals)
    found = GEAR(batch, entropy_quantile=math.inf, anchor_quantile=0.5).diagnostics
    assert found["anchors"] == 2
    assert found["segment_length_max"] == 5
    assert found["segment_length_mean"] == 5.0


def test_signals_are_those_that_the_parameters_read() -> None:
    assert GEAR.signals_for({}) == ("entropy", "kl")
    assert GEAR.signals_for({"kl": "topk", "weight": "log_ratio"}) == ("entropy", "kl_topk", "teacher_logp")
    assert GEAR.signals_for({"kl": "sampled", "segments": "fixed"}) == ("teacher_logp",)


def test_random_anchors_have_the_rate_of_divergent_ones_and_other_places() -> None:
    rng = np.random.default_rng(0)
    signals = {"kl": rng.exponential(1.0, 40_000), "entropy": np.zeros(40_000)}
    batch = CreditBatch.from_rewards([[[1.0] * 200, [0.0] * 200]], tokens_per_turn=100, signals=signals)
    options: dict[str, Any] = {"segments": "fixed", "segment_length": 1, "mean_preserving": False}
    divergent, random = (GEAR(batch, anchors=kind, **options) for kind in ("divergence", "random"))
    assert divergent.diagnostics["anchor_share"] == pytest.approx(0.1, abs=0.001)
    assert random.diagnostics["anchor_share"] == pytest.approx(0.1, abs=0.01)
    longer = GEAR(batch, anchors="random", **options | {"segment_length": 4})
    changed = longer.values != random.values
    assert 0.2 < changed.mean() < 0.4, "three tokens after each of the anchors that lie apart"
    assert abs(np.corrcoef(changed[1:], signals["kl"][:-1])[0, 1]) < 0.3
    shifted = CreditBatch.from_rewards([[[1.0] * 200, [0.0] * 200]], tokens_per_turn=100, signals=signals)
    np.testing.assert_array_equal(GEAR(shifted, anchors="random", **options).values, random.values)


@given(references.worlds(), st.integers(0, 9))
@settings(max_examples=30)
def test_random_anchors_do_not_depend_on_the_order_of_rollouts(world: references.World, turn: int) -> None:
    order = references.members(world)
    turned = order[turn % len(order) :] + order[: turn % len(order)]
    values = {}
    for name, members in (("straight", order), ("turned", turned)):
        batch = references.build(world, members)
        credit = GEAR(batch, anchors="random", anchor_quantile=0.5, mean_preserving=False)
        values[name] = {m: credit.values[batch.trajectory_of_token == i] for i, m in enumerate(members)}
    for member in order:
        np.testing.assert_allclose(values["turned"][member], values["straight"][member], rtol=0, atol=1e-12)


def worked_batch() -> CreditBatch:
    """A winner and a loser with the same five tokens: an anchor at token 1, entropy ends its segment at token 3."""
    signals = {
        "kl": [0.0, 1.0, 0.1, 0.0, 0.0] * 2,
        "entropy": [0.1, 0.9, 0.2, 1.0, 0.1] * 2,
        "teacher_logp": [-0.1, -1.0, 0.5, 0.0, 0.0] * 2,
    }
    return CreditBatch.from_rewards([[[1.0], [0.0]]], tokens_per_turn=5, signals=signals)


def test_worked_numbers() -> None:
    batch, unit = worked_batch(), 0.5**0.5
    credit = GEAR(batch, epsilon=0.9, eps=0.0, mean_preserving=False)
    # S = 0, 1, 1, 0, 0 with mean 0.4: blame falls on the segment, praise on the rest
    praise = [math.exp(0.4), math.exp(-0.6), math.exp(-0.6), math.exp(0.4), math.exp(0.4)]
    blame = [math.exp(-0.4), math.exp(0.6), math.exp(0.6), math.exp(-0.4), math.exp(-0.4)]
    assert credit.values == pytest.approx([unit * w for w in praise] + [-unit * w for w in blame], abs=1e-12)
    magnitude = GEAR(batch, weight="magnitude", c=0.5, eps=0.0, epsilon=0.25, mean_preserving=False)
    weights = [0.8, 1.25, 1.25, 0.8, 0.8]
    assert magnitude.values == pytest.approx([unit * w for w in weights] + [-unit * w for w in weights], abs=1e-12)
    ratio = GEAR(batch, weight="log_ratio", epsilon=0.9, eps=0.0, mean_preserving=False).values[:5]
    assert ratio == pytest.approx([unit * w for w in (math.exp(-0.1), math.exp(-1), math.exp(-1), 1, 1)], abs=1e-12)


def test_diagnostics() -> None:
    found = GEAR(worked_batch()).diagnostics
    assert found["reconstruction"] is True
    assert found["anchors"] == 2
    assert found["anchor_share"] == pytest.approx(0.2)
    assert (found["segment_length_mean"], found["segment_length_max"]) == (2.0, 2)
    assert found["segment_token_share"] == pytest.approx(0.4)
    assert found["weight_mean"] == pytest.approx(1.0)
    assert found["weight_min"] < 1.0 < found["weight_max"]


def test_diagnostics_leave_excluded_rollouts_out() -> None:
    world = [[references.Rollout([reward], [0], [_tokens()]) for reward in (1.0, 0.0, None)]]
    found = GEAR(references.build(world)).diagnostics
    assert found["anchors"] == 2
    assert found["anchor_share"] == pytest.approx(0.2)


def _tokens() -> list[dict[str, float]]:
    kl, entropy = [0.0, 1.0, 0.1, 0.0, 0.0], [0.1, 0.9, 0.2, 1.0, 0.1]
    return [{"logp": 0.0, "teacher_logp": 0.0, "kl": k, "entropy": h} for k, h in zip(kl, entropy, strict=True)]


def test_no_tokens_at_all() -> None:
    batch = CreditBatch.from_rewards(
        [[[1.0], [0.0]]], tokens_per_turn=0, signals={"kl": [], "entropy": [], "teacher_logp": []}
    )
    credit = GEAR(batch)
    assert credit.values.shape == (0,)
    assert credit.diagnostics["weight_mean"] == 1.0
