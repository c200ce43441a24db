"""REINFORCE++ with a group baseline against its loop reference and its facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.reinforce_pp import reinforce_pp
from references import step_methods

PARAMS = st.fixed_dictionaries(
    {
        "ddof": st.sampled_from([0, 1]),
        "eps": st.sampled_from([0.0, 1e-6, 0.5]),
        "baseline_over": st.sampled_from(["trajectory", "step"]),
    }
)


@given(references.worlds(), st.one_of(st.just({}), PARAMS))
@settings(max_examples=40)
def test_reference(world: references.World, params: dict[str, Any]) -> None:
    if not any(rollout.counts for group in world for rollout in group):
        assert not reinforce_pp(references.build(world), **params).values.any()
        return
    credit = reinforce_pp(references.build(world), **params)
    assert credit.level == "trajectory"
    expected = references.flat(step_methods.reinforce_pp(world, **params))
    np.testing.assert_allclose(credit.values, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("ddof", "deviation"), [(1, (34 / 5) ** 0.5), (0, (34 / 6) ** 0.5)])
def test_one_scale_for_all_groups(ddof: int, deviation: float) -> None:
    """Differences 4, −4 and 1, −1 and, from two equal returns, 0, 0."""
    batch = CreditBatch.from_rewards([[[8.0], [0.0]], [[2.0], [0.0]], [[1.0], [1.0]]])
    credit = reinforce_pp(batch, ddof=ddof, eps=0.0)
    assert credit.values == pytest.approx(np.array([4, -4, 1, -1, 0, 0]) / deviation, abs=1e-12)
    assert credit.values[4:].tolist() == [0.0, 0.0]
    assert credit.diagnostics["batch_std"] == pytest.approx(deviation, abs=1e-12)


def test_excluded_rollouts_do_not_count_in_the_scale() -> None:
    whole = CreditBatch.from_rewards([[[8.0], [0.0], [None]], [[None]], [[2.0], [0.0]]])
    kept = CreditBatch.from_rewards([[[8.0], [0.0]], [[2.0], [0.0]]])
    assert reinforce_pp(whole).values[[0, 1, 4, 5]].tolist() == reinforce_pp(kept).values.tolist()
    assert reinforce_pp(whole).values[[2, 3]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("rewards", [[[[10.0]]], [[[0.1, 0.2], [0.3]], [[0.7]]], [[[None]]], []])
def test_nothing_to_compare_is_exactly_zero(rewards: list[list[list[float | None]]]) -> None:
    assert not reinforce_pp(CreditBatch.from_rewards(rewards), eps=0.0).values.any()


def test_a_second_batch_of_the_same_groups_changes_nothing_but_the_sample_size() -> None:
    rewards: list[list[list[float | None]]] = [[[1.0], [0.0], [0.0]], [[3.0], [0.0]]]
    once, twice = (reinforce_pp(CreditBatch.from_rewards(rewards * n), ddof=0).values for n in (1, 2))
    assert twice[:5] == pytest.approx(once, abs=1e-12)
