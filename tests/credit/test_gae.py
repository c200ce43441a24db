"""GAE against its loop reference and its identities."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.gae import gae
from agentbench_credit.errors import ConfigError, CreditInputError
from agentbench_credit.trajectory import State
from references import value_methods

WORLDS = references.worlds()
PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.99, 1.0]),
        "gae_lambda": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "norm": st.sampled_from(["batch", "none"]),
        "truncation": st.sampled_from(["terminal", "bootstrap"]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
    }
)


def raw(batch: CreditBatch, **params: Any) -> np.ndarray:
    return gae(batch, norm="none", **params).values


def valued(values: list[float], rewards: list[list[list[float | None]]], **params: Any) -> CreditBatch:
    return CreditBatch.from_rewards(rewards, signals={"values": values}, **params)


@given(WORLDS, st.one_of(st.just({}), PARAMS))
@settings(max_examples=100)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = gae(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(value_methods.gae(world, **params)), rtol=0, atol=1e-9)


@given(WORLDS, PARAMS)
@settings(max_examples=40)
def test_targets_are_what_the_critic_should_have_said_whatever_the_normalisation(
    world: references.World, params: dict[str, Any]
) -> None:
    targets = gae(references.build(world), **params).value_targets
    assert targets is not None
    of_formula = {name: params[name] for name in ("gamma", "gae_lambda", "truncation")}
    expected = references.flat(value_methods.gae_targets(world, **of_formula))
    assert len(targets) == len(expected)
    for target, wanted in zip(targets, expected, strict=True):
        assert wanted is None or target == pytest.approx(wanted, abs=1e-9)


@given(WORLDS, st.booleans())
@settings(max_examples=20)
def test_a_penalty_counts_once_in_the_reward_or_beside_it(world: references.World, inside: bool) -> None:
    credit = gae(references.build(world, invalid_action_penalty=-0.25, penalty_in_reward=inside))
    after = [0.0 if inside else -0.25 * bad * r.counts for group in world for r in group for bad in r.invalid]
    for rollout in (rollout for group in world for rollout in group if inside):
        pairs = zip(rollout.rewards, rollout.invalid, strict=True)
        rollout.rewards = [None if r is None else r - 0.25 * bad for r, bad in pairs]
    expected = np.array(references.flat(value_methods.gae(world))) + after
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@given(WORLDS, st.sampled_from([0.5, 0.99, 1.0]))
@settings(max_examples=30)
def test_lambda_one_is_the_return_to_go_minus_the_value(world: references.World, gamma: float) -> None:
    batch = references.build(world)
    included = batch.included[batch.trajectory_of_turn]
    credit = gae(batch, norm="none", gae_lambda=1.0, gamma=gamma)
    returns = batch.discounted_returns(gamma)
    expected = np.where(included, returns - batch.signals["values"], 0.0)
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)
    assert credit.value_targets is not None
    np.testing.assert_allclose(credit.value_targets[included], returns[included], rtol=0, atol=1e-9)


@given(WORLDS)
@settings(max_examples=20)
def test_lambda_zero_is_the_one_step_error(world: references.World) -> None:
    found = iter(raw(references.build(world), gae_lambda=0.0, gamma=0.5))
    for rollout in (rollout for group in world for rollout in group):
        for t, reward in enumerate(rollout.rewards):
            following = rollout.values[t + 1] if t + 1 < len(rollout.rewards) else 0.0
            expected = (reward or 0.0) + 0.5 * following - rollout.values[t] if rollout.counts else 0.0
            assert next(found) == pytest.approx(expected, abs=1e-12)


@given(WORLDS, st.sampled_from([0.5, 0.99, 1.0]), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=30)
def test_values_that_foresee_everything_leave_no_advantage(
    world: references.World, gamma: float, gae_lambda: float
) -> None:
    batch = references.build(world)
    exact = replace(batch, signals={"values": batch.discounted_returns(gamma)})
    assert raw(exact, gamma=gamma, gae_lambda=gae_lambda) == pytest.approx(0.0, abs=1e-9)
    assert not gae(exact, gamma=gamma, gae_lambda=gae_lambda, eps=0.0).values.any(), "rounding became a signal"


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
def test_exact_values_have_mean_zero_in_every_state_of_a_chain(gae_lambda: float) -> None:
    """Three coin flips that pay 1, 2 and 4: all eight rollouts, once each; V depends on the step only."""
    gamma, pay = 0.5, (1.0, 2.0, 4.0)
    rewards = [[pay[t] * flip for t, flip in enumerate(flips)] for flips in itertools.product((0, 1), repeat=3)]
    last = pay[2] / 2
    middle = pay[1] / 2 + gamma * last
    values = [pay[0] / 2 + gamma * middle, middle, last]
    batch = CreditBatch.from_rewards([rewards], signals={"values": values * 8})
    advantages = raw(batch, gamma=gamma, gae_lambda=gae_lambda).reshape(8, 3)
    assert advantages.mean(0) == pytest.approx(0.0, abs=1e-12)
    assert np.abs(advantages).max(0).min() > 0.1, "there is nothing to average"
    biased = CreditBatch.from_rewards([rewards], signals={"values": [v + 1.0 for v in values] * 8})
    assert np.abs(raw(biased, gamma=gamma, gae_lambda=gae_lambda).reshape(8, 3).mean(0)).min() > 0.1


def test_worked_numbers() -> None:
    batch = valued([1.0, 2.0], [[[0.0, 4.0]]])
    # δ = 0 + 0.5·2 − 1 = 0 and 4 − 2 = 2; A = 0 + 0.25·2 = 0.5 and 2; targets 1.5 and 4
    credit = gae(batch, gamma=0.5, gae_lambda=0.5, norm="none")
    assert credit.values.tolist() == [0.5, 2.0]
    assert credit.value_targets is not None
    assert credit.value_targets.tolist() == [1.5, 4.0]
    normalised = gae(batch, gamma=0.5, gae_lambda=0.5, eps=0.0)
    assert normalised.values == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-12)
    assert normalised.diagnostics["advantage_mean"] == 1.25
    assert normalised.diagnostics["advantage_std"] == 0.75
    assert normalised.value_targets is not None
    assert normalised.value_targets.tolist() == [1.5, 4.0]


ENDINGS: tuple[State, ...] = ("ended", "truncated", "error")


def test_only_truncated_rollouts_take_their_final_value() -> None:
    world = [[references.Rollout([1.0], [0], [[]], ending, values=[0.0], final_value=8.0) for ending in ENDINGS]]
    batch = references.build(world)
    credit = gae(batch, gamma=0.5, norm="none", truncation="bootstrap")
    assert credit.values.tolist() == [1.0, 5.0, 0.0]
    assert credit.diagnostics["bootstrapped_rollouts"] == 1
    assert (credit.diagnostics["advantage_mean"], credit.diagnostics["advantage_std"]) == (3.0, 2.0)
    terminal = gae(batch, gamma=0.5, norm="none")
    assert terminal.values.tolist() == [1.0, 1.0, 0.0]
    assert terminal.diagnostics["bootstrapped_rollouts"] == 0


def test_final_values_are_asked_for_only_where_they_are_read() -> None:
    assert gae.signals_for({}) == ("values",)
    assert gae.signals_for({"truncation": "bootstrap"}) == ("values", "final_values")
    batch = valued([0.0], [[[1.0]]])
    assert raw(batch).tolist() == [1.0]
    with pytest.raises(CreditInputError, match="no signal final_values"):
        gae(batch, truncation="bootstrap")
    with pytest.raises(CreditInputError, match="no signal values"):
        gae(CreditBatch.from_rewards([[[1.0]]]))
    with pytest.raises(ConfigError, match="norm is 'std'"):
        gae(batch, norm="std")


def test_a_group_of_one_keeps_its_advantage_and_equal_advantages_have_none() -> None:
    alone = valued([0.0, 0.0], [[[1.0]], [[0.0]]])
    assert gae(alone, eps=0.0).values == pytest.approx([0.5**0.5, -(0.5**0.5)])
    equal = valued([0.0, 0.0, 1e3 - 0.3], [[[0.1 + 0.2], [0.3], [1e3]]])
    assert np.ptp(raw(equal)) > 0, "there is no rounding to amplify"
    assert not gae(equal, eps=0.0).values.any()
    large = [
        references.Rollout([0.0], [0], [[]], "truncated", values=[1e4 - 0.3], final_value=1e4),
        references.Rollout([0.3], [0], [[]]),
    ]
    cancelled = references.build([large])
    assert np.ptp(raw(cancelled, gamma=1.0, truncation="bootstrap")) > 1e-13, "there is no rounding to amplify"
    assert not gae(cancelled, gamma=1.0, truncation="bootstrap", eps=0.0).values.any()
    assert not gae(valued([0.5], [[[1.0]]]), eps=0.0).values.any(), "the only turn of a batch"


@given(WORLDS, st.sampled_from(["terminal", "bootstrap"]))
@settings(max_examples=20)
def test_excluded_rollouts_leave_the_others_alone(world: references.World, truncation: str) -> None:
    order = references.members(world)
    kept = [(g, i) for g, i in order if world[g][i].counts]
    everyone, alone = references.build(world), references.build(world, kept)
    values = gae(everyone, truncation=truncation).values
    included = everyone.included[everyone.trajectory_of_turn]
    np.testing.assert_array_equal(values[included], gae(alone, truncation=truncation).values)
    assert not values[~included].any()


@given(WORLDS, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_permuting_rollouts_permutes_the_advantages(world: references.World, random: Any) -> None:
    order = references.members(world)
    shuffled = random.sample(order, len(order))
    found = {}
    for members in (order, shuffled):
        batch = references.build(world, members)
        parts = np.split(gae(batch, truncation="bootstrap").values, batch.turn_offsets[1:-1])
        found[members is order] = dict(zip(members, parts, strict=True))
    for member in order:
        np.testing.assert_allclose(found[False][member], found[True][member], rtol=0, atol=1e-12)


def test_no_rollouts_and_no_turns() -> None:
    empty = CreditBatch.from_trajectories([], signals={"values": [], "final_values": []})
    assert gae(empty, truncation="bootstrap").values.shape == (0,)
    world = [[references.Rollout([], [], [], "truncated", final_value=3.0)]]
    credit = gae(references.build(world), truncation="bootstrap")
    assert credit.values.shape == (0,)
    assert credit.diagnostics["bootstrapped_rollouts"] == 0
