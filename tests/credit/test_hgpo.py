"""HGPO against its loop reference and its identities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.gigpo import gigpo
from agentbench_credit.credit.hgpo import hgpo
from agentbench_credit.errors import ConfigError
from references import step_methods

PARAMS = st.fixed_dictionaries(
    {
        "history": st.integers(0, 5),
        "alpha": st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        "gamma": st.sampled_from([0.0, 0.5, 0.95, 1.0]),
        "episode": st.booleans(),
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=60)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    credit = hgpo(references.build(world), **params)
    assert credit.level == "turn"
    np.testing.assert_allclose(credit.values, references.flat(step_methods.hgpo(world, **params)), rtol=0, atol=1e-9)


@given(references.worlds())
@settings(max_examples=15)
def test_without_history_it_is_the_step_term_of_gigpo(world: references.World) -> None:
    batch = references.build(world)
    step = gigpo(batch, ddof=0).values - gigpo(batch, ddof=0, omega=0.0).values
    np.testing.assert_allclose(hgpo(batch, history=0).values, step, rtol=0, atol=1e-12)


@given(references.worlds())
@settings(max_examples=15)
def test_without_repeated_states_the_episode_item_alone_is_left(world: references.World) -> None:
    number = iter(range(10**6))
    for rollout in (rollout for group in world for rollout in group):
        rollout.states = [next(number) for _ in rollout.states]
    batch = references.build(world)
    assert not hgpo(batch).values.any()
    episode = gigpo(batch, ddof=0, omega=0.0).values
    np.testing.assert_allclose(hgpo(batch, episode=True).values, episode, rtol=0, atol=1e-12)


def crossing() -> CreditBatch:
    """Two rollouts come to x from a, a third from b; returns-to-go at x are 1, 0 and 0."""
    states = [[["a", "x"], ["a", "x"], ["b", "x"]]]
    return CreditBatch.from_rewards([[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]], states=states)


def test_worked_numbers() -> None:
    values = hgpo(crossing(), history=1, gamma=0.5, eps=0.0).values
    high, low = 2**0.5, -(0.5**0.5)  # z-scores of 1, 0, 0
    second = (2 * low - 3) / 5
    expected = [1.0, (2 * high + 3) / 5, -1.0, second, 0.0, low]
    assert values == pytest.approx(expected, abs=1e-12)


def test_a_step_with_too_few_keys_has_no_longer_history() -> None:
    """The first turns agree in one key, and in no two although nothing came before either."""
    batch = CreditBatch.from_rewards([[[1.0], [0.0]]], states=[[["s"], ["s"]]])
    credit = hgpo(batch, history=2)
    assert credit.diagnostics["shared_history_shares"] == [1.0, 0.0, 0.0]
    assert credit.values == pytest.approx([1.0, -1.0], abs=1e-5)


def test_history_does_not_reach_into_the_rollout_before() -> None:
    states = [[["a", "x"], ["x"], ["a", "x"]]]
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [0.0], [0.0, 0.0]]], states=states)
    assert hgpo(batch, history=1).diagnostics["shared_history_shares"] == [1.0, 2 / 5]


def test_an_item_at_the_mean_is_dropped_even_if_rounding_moves_it() -> None:
    """0.2 is the mean of 0.1, 0.2 and 0.3 but not of their floating-point sum; against a second 0.1 it is above."""
    batch = CreditBatch.from_rewards(
        [[[0.0, 0.1], [0.0, 0.2], [0.0, 0.3]]], states=[[["a", "x"], ["a", "x"], ["b", "x"]]]
    )
    assert hgpo(batch, history=1, eps=0.0).values[3] == pytest.approx(1.0, abs=1e-9)
    assert hgpo(batch, history=0, eps=0.0).values[3] == 0.0


def test_diagnostics_leave_out_excluded_rollouts() -> None:
    states = [[["a", "x"], ["a", "x"], ["a", "x"]]]
    batch = CreditBatch.from_rewards([[[0.0, 1.0], [None, 0.0], [0.0, 0.0]]], states=states)
    found = hgpo(batch, history=1).diagnostics
    assert found["shared_history_shares"] == [1.0, 0.5]
    assert found["states"] == 2


def test_a_history_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="history"):
        hgpo(crossing(), history=1.5)


def test_no_rollouts() -> None:
    assert hgpo(CreditBatch.from_rewards([])).values.size == 0
