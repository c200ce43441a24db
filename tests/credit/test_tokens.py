"""Per-turn statistics and bounded weights against obvious loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import references
from agentbench_credit.credit.tokens import bounded_exp, turn_means, turn_quantiles

TURNS = st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 3.0]), max_size=9), max_size=8)


def columns(turns: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([value for turn in turns for value in turn], dtype=float), np.cumsum([0, *map(len, turns)])


@given(TURNS)
def test_means(turns: list[list[float]]) -> None:
    expected = [math.fsum(turn) / len(turn) if turn else 0.0 for turn in turns]
    np.testing.assert_allclose(turn_means(*columns(turns)), expected, rtol=0, atol=1e-12)


@given(TURNS, st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.9, 1.0]))
def test_quantiles(turns: list[list[float]], quantile: float) -> None:
    values, offsets = columns(turns)
    before = values.copy()
    expected = [references.quantile(turn, quantile) if turn else math.inf for turn in turns]
    assert turn_quantiles(values, offsets, quantile).tolist() == expected
    assert values.tolist() == before.tolist()


def test_the_quantile_lies_between_the_two_nearest_values() -> None:
    values = np.array([5.0, 1.0, 2.0, 4.0, 3.0, 7.0])
    offsets = np.array([0, 5, 5, 6])
    assert turn_quantiles(values, offsets, 0.9) == pytest.approx([4.6, math.inf, 7.0])
    assert turn_quantiles(values, offsets, math.inf).tolist() == [math.inf] * 3


def test_bounded_exp_stays_within_its_bounds_for_any_exponent() -> None:
    exponents = np.array([-1e308, -1.0, -0.1, 0.0, 0.1, 1.0, 1e308])
    expected = [0.8, 0.8, math.exp(-0.1), 1.0, math.exp(0.1), 1.2, 1.2]
    with np.errstate(over="raise"):
        assert bounded_exp(exponents, 0.2) == pytest.approx(expected, abs=1e-15)
        assert bounded_exp(exponents, 0.0).tolist() == [1.0] * 7
