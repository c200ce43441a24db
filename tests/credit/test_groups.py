"""Group statistics against the standard library and exact fractions, and their policies."""

from __future__ import annotations

import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import references
from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit.groups import (
    Groups,
    action_groups,
    joint_codes,
    state_groups,
    trajectory_groups,
    visit_diagnostics,
)


def one_group(size: int) -> Groups:
    return Groups(np.zeros(size, np.int64), np.ones(size), 1)


TENTHS = st.integers(-20, 109).map(lambda tenths: tenths / 10)
ITEMS = st.lists(st.tuples(st.integers(0, 4), TENTHS, st.integers(0, 5)), max_size=40)


@given(ITEMS, st.sampled_from([0, 1]), st.sampled_from([0.0, 1e-6, 0.5]))
@settings(max_examples=100)
def test_z_scores_are_those_of_exact_arithmetic(items: list[tuple[int, float, int]], ddof: int, eps: float) -> None:
    index, values, weights = (np.array(column) for column in zip(*items, strict=True)) if items else [np.zeros(0)] * 3
    groups = Groups(index.astype(np.int64), weights.astype(float), 5)
    expected = np.zeros(len(items))
    for key in range(5):
        inside = [n for n, (group, _, weight) in enumerate(items) if group == key and weight > 0]
        exact = [Fraction(str(items[n][1])) for n in inside]
        expected[inside] = references.z_score(exact, [items[n][2] for n in inside], ddof, eps)
    np.testing.assert_allclose(groups.z_scores(values.astype(float), ddof=ddof, eps=eps), expected, rtol=0, atol=1e-9)


@given(ITEMS)
@settings(max_examples=100)
def test_differences_from_the_others_are_those_of_exact_arithmetic(items: list[tuple[int, float, int]]) -> None:
    groups = Groups(
        np.array([group for group, _, _ in items], np.int64), np.array([float(weight) for _, _, weight in items]), 5
    )
    result = groups.minus_mean_of_others(np.array([value for _, value, _ in items]))
    for n, (group, value, weight) in enumerate(items):
        others = [(v, w) for m, (g, v, w) in enumerate(items) if g == group and m != n and w > 0]
        expected = Fraction(0)
        if weight > 0 and others:
            total = sum((Fraction(str(v)) * w for v, w in others), Fraction(0))
            expected = Fraction(str(value)) - total / sum(w for _, w in others)
        assert result[n] == pytest.approx(float(expected), abs=1e-9)


def test_mean_and_both_deviations_as_the_standard_library_has_them() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    for ddof, deviation in ((1, statistics.stdev(values)), (0, statistics.pstdev(values))):
        expected = [(value - statistics.fmean(values)) / (deviation + 0.25) for value in values]
        assert one_group(5).z_scores(np.array(values), ddof=ddof, eps=0.25) == pytest.approx(expected, abs=1e-12)


def test_a_group_of_one_is_zero() -> None:
    assert one_group(1).z_scores(np.array([10.0]), eps=0.0).tolist() == [0.0]
    assert one_group(1).minus_mean_of_others(np.array([10.0])).tolist() == [0.0]


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-300])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e9 / 7, 1e-200, -1e300])
def test_equal_values_are_exactly_zero(value: float, eps: float) -> None:
    for size in range(1, 12):
        assert one_group(size).z_scores(np.full(size, value), eps=eps).tolist() == [0.0] * size
        assert one_group(size).minus_mean_of_others(np.full(size, value)).tolist() == [0.0] * size


def test_sums_that_differ_by_rounding_alone_are_equal() -> None:
    batch = CreditBatch.from_rewards([[[0.1, 0.1, 0.1], [0.3], [0.1, 0.2], [0.3, 0.7, -0.7], [1e3, 0.3, -1e3]]])
    assert len(set(batch.returns.tolist())) > 1  # the trap is real
    groups = trajectory_groups(batch)
    assert groups.all_equal(batch.returns, batch.absolute_returns).all()
    assert not groups.z_scores(batch.returns, batch.absolute_returns, eps=0.0).any()
    assert not groups.minus_mean_of_others(batch.returns, batch.absolute_returns).any()


def test_a_sum_that_cancels_to_zero_is_judged_by_its_terms() -> None:
    batch = CreditBatch.from_rewards([[[0.1, 0.2, -0.3], [0.0]]])
    assert batch.returns[0] != 0.0  # the trap is real
    assert trajectory_groups(batch).z_scores(batch.returns, batch.absolute_returns, eps=0.0).tolist() == [0.0, 0.0]


def test_small_but_real_differences_count() -> None:
    scores = one_group(2).z_scores(np.array([1.0, 1.0 + 1e-9]), eps=0.0)
    assert scores == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-6)


def test_a_large_common_offset_costs_no_accuracy() -> None:
    values = np.array([0.0, 1.0, 2.0, 5.0])
    plain, shifted = one_group(4).z_scores(values), one_group(4).z_scores(values + 2.0**40)
    np.testing.assert_array_equal(plain, shifted)


def test_items_left_out_change_nothing_and_get_zero() -> None:
    groups = Groups(np.array([0, 0, 0, 1]), np.array([1.0, 0.0, 1.0, 0.0]), 2)
    scores = groups.z_scores(np.array([2.0, 1e9, 4.0, 7.0]), eps=0.0)
    assert scores == pytest.approx([-(0.5**0.5), 0.0, 0.5**0.5, 0.0])
    assert groups.sizes.tolist() == [2, 0]
    assert groups.all_equal(np.array([2.0, 1e9, 4.0, 7.0])).tolist() == [False, True]


def test_step_weights_count_a_rollout_once_per_turn() -> None:
    batch = CreditBatch.from_rewards([[[5.0, 5.0], [0.0] * 8]])
    assert trajectory_groups(batch).centred(batch.returns).tolist() == [5.0, -5.0]
    assert trajectory_groups(batch, "step").centred(batch.returns).tolist() == [8.0, -2.0]


def test_state_groups_keep_tasks_apart_and_count_repeat_visits() -> None:
    rewards: list[list[list[float | None]]] = [[[0.0, 0.0, 0.0], [0.0]], [[0.0], [None]]]
    batch = CreditBatch.from_rewards(rewards, states=[[["s", "s", "t"], ["s"]], [["s"], ["s"]]])
    groups = state_groups(batch)
    assert groups.n_groups == 3
    assert groups.index.tolist() == [0, 0, 1, 0, 2, 2]
    assert groups.sizes.tolist() == [3, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
@settings(max_examples=40)
def test_joint_codes_number_the_distinct_pairs_in_order(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array([pair[column] for pair in pairs], np.int64) for column in (0, 1))
    assert joint_codes(first, second).tolist() == [sorted(set(pairs)).index(pair) for pair in pairs]


def test_action_groups_divide_the_visits_of_a_state() -> None:
    rewards: list[list[list[float | None]]] = [[[0.0, 0.0, 0.0], [0.0]], [[0.0], [None]]]
    batch = CreditBatch.from_rewards(
        rewards,
        states=[[["s", "s", "t"], ["s"]], [["s"], ["s"]]],
        actions=[[["left", "right", "left"], ["left"]], [["left"], ["left"]]],
    )
    groups = action_groups(batch)
    assert groups.n_groups == 4
    assert groups.index.tolist() == [0, 1, 2, 0, 3, 3]
    assert groups.sizes.tolist() == [2, 1, 1, 1]


def test_items_at_their_mean_are_found_in_spite_of_rounding() -> None:
    values = np.array([0.1, 0.2, 0.3])
    assert one_group(3).centred(values)[1] != 0.0  # the trap is real
    assert one_group(3).at_mean(values).tolist() == [False, True, False]
    assert one_group(3).at_mean(values + np.array([0.0, 1e-9, 0.0])).tolist() == [False, False, False]
    left_out = Groups(np.array([0, 0, 0, 1]), np.array([1.0, 0.0, 1.0, 0.0]), 2)
    assert left_out.at_mean(np.array([2.0, 9.0, 4.0, 7.0])).tolist() == [False, True, False, True]


def test_rounding_of_the_terms_counts_for_items_at_their_mean() -> None:
    values, scale = np.array([-1e-9, 0.0, 1e-9]), np.array([1e3, 1e3, 1e4])
    assert one_group(3).at_mean(values, scale).all()
    assert one_group(3).at_mean(values).tolist() == [False, True, False]


def test_means_are_weighted_and_zero_without_items() -> None:
    groups = Groups(np.array([0, 0, 1, 2]), np.array([1.0, 3.0, 0.0, 0.5]), 3)
    assert groups.means(np.array([4.0, 8.0, 5.0, 6.0])).tolist() == [7.0, 0.0, 6.0]


def test_visits_are_counted_over_included_rollouts() -> None:
    batch = CreditBatch.from_rewards([[[0.0, 0.0], [0.0], [None]]], states=[[["s", "t"], ["s"], ["u"]]])
    assert visit_diagnostics(state_groups(batch)) == {"states": 2, "repeated_states": 1, "singleton_share": 0.5}
    nothing = visit_diagnostics(state_groups(CreditBatch.from_rewards([])))
    assert nothing == {"states": 0, "repeated_states": 0, "singleton_share": 0.0}


def test_no_items() -> None:
    batch = CreditBatch.from_rewards([])
    groups = state_groups(batch)
    assert groups.n_groups == 0
    assert groups.z_scores(np.zeros(0)).shape == (0,)
