"""Intervals against scipy and against their own definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from agentbench_credit.stats import wilson_interval


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_equals_scipy(counts: tuple[int, int], confidence: float) -> None:
    successes, trials = counts
    expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes, trials, confidence) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_wilson_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    draws = rng.binomial(512, 0.4, size=4000)
    intervals = [wilson_interval(int(k), 512) for k in draws]
    assert np.mean([low <= 0.4 <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson_interval(successes, trials)
