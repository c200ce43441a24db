"""ECPO against its loop reference and its identities."""

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
from agentbench_credit.credit.ecpo import ecpo
from references import step_methods

PARAMS = st.fixed_dictionaries(
    {
        "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "omega": st.sampled_from([0.0, 0.5, 1.0]),
        "kappa": st.sampled_from([0.0, 0.5, 1.0, 8.0]),
        "tau": st.sampled_from([0.5, 4.0, math.inf]),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6, 0.1]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = ecpo(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(step_methods.ecpo(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds(), st.sampled_from([{"omega": 0.0}, {"kappa": math.inf}, {"tau": math.inf}]))
@settings(max_examples=20)
def test_without_the_action_term_it_is_exactly_grpo(world: references.World, params: dict[str, Any]) -> None:
    batch = references.build(world)
    grpo = METHODS.get("grpo")(batch).values[batch.trajectory_of_turn]
    np.testing.assert_array_equal(ecpo(batch, **params).values, grpo)


@given(references.worlds())
@settings(max_examples=20)
def test_states_of_one_action_give_exactly_grpo(world: references.World) -> None:
    for rollout in (rollout for group in world for rollout in group):
        rollout.actions = list(rollout.states)
    batch = references.build(world)
    credit = ecpo(batch, eps=0.0)
    grpo = METHODS.get("grpo")(batch, eps=0.0).values[batch.trajectory_of_turn]
    np.testing.assert_array_equal(credit.values, grpo)
    assert credit.diagnostics["gate_share"] == 0.0


def choice(rewards: list[float], actions: list[str]) -> CreditBatch:
    """Rollouts of one turn in one state."""
    group: list[list[float | None]] = [[reward] for reward in rewards]
    return CreditBatch.from_rewards(
        [group], states=[[["s"]] * len(rewards)], actions=[[[action] for action in actions]]
    )


def test_worked_numbers() -> None:
    """Left returns 1 and 0, right 0 and 0: G is 1/2 and 0, μ 1/4, B = 1/16 and W = 1/8."""
    batch = choice([1.0, 0.0, 0.0, 0.0], ["left", "left", "right", "right"])
    credit = ecpo(batch, kappa=2.0, tau=4.0, ddof=0, eps=0.0)
    episode = np.array([3.0, -1.0, -1.0, -1.0]) / 3**0.5
    gate = math.tanh(1.0) / 3
    assert credit.values == pytest.approx(episode + gate * np.array([1, 1, -1, -1]), abs=1e-12)
    assert credit.diagnostics["gate_share"] == 1.0
    assert credit.diagnostics["gate_mean"] == pytest.approx(gate, abs=1e-12)


def test_shrinking_pulls_the_rarer_action_more() -> None:
    """Left returns 1 once, right 1 twice, stay 0 twice; μ = 3/5, and nothing varies within an action."""
    batch = choice([1.0, 1.0, 1.0, 0.0, 0.0], ["left", "right", "right", "stay", "stay"])
    term = ecpo(batch, ddof=0, eps=0.0).values - METHODS.get("grpo")(batch, ddof=0, eps=0.0).values
    shrunk = np.array([3 / 5 + 1 / 2 * 2 / 5] + [3 / 5 + 2 / 3 * 2 / 5] * 2 + [3 / 5 - 2 / 3 * 3 / 5] * 2)
    assert term == pytest.approx(math.tanh(5 / 4) * (shrunk - shrunk.mean()) / shrunk.std(), abs=1e-12)
    assert term[0] < term[1]


def test_equal_returns_open_no_gate() -> None:
    credit = ecpo(choice([0.3, 0.3, 0.3], ["left", "right", "left"]), eps=0.0)
    assert credit.values.tolist() == [0.0, 0.0, 0.0]
    assert credit.diagnostics["gate_share"] == 0.0


def test_excluded_rollouts_try_no_action() -> None:
    rewards: list[list[list[float | None]]] = [[[1.0], [0.0], [None]]]
    batch = CreditBatch.from_rewards(rewards, states=[[["s"]] * 3], actions=[[["left"], ["right"], ["right"]]])
    kept = ecpo(choice([1.0, 0.0], ["left", "right"]))
    assert ecpo(batch).values.tolist() == [*kept.values.tolist(), 0.0]
    assert ecpo(batch).diagnostics["gate_mean"] == kept.diagnostics["gate_mean"]
