"""Intervals against scipy and against their own definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from agentbench_credit.stats import clustered_interval, wilson_interval


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


def test_clustered_interval_lies_between_tasks_and_tries() -> None:
    alike, even = [1.0] * 6 + [0.0] * 4, [0.5] * 10
    assert clustered_interval(alike, 8) == wilson_interval(6, 10), "tries of a task that always agree add nothing"
    assert clustered_interval(even, 8) == wilson_interval(40, 80), "tasks that do not differ: every try counts"
    mixed = clustered_interval([0.5, 0.75, 0.5, 0.625, 0.625, 0.5, 0.75, 0.625, 0.5, 0.625], 8)
    assert wilson_interval(6, 10).low < mixed.low < 0.6 < mixed.high < wilson_interval(6, 10).high
    assert clustered_interval([0.0] * 30, 32) == wilson_interval(0, 30)
    with pytest.raises(ValueError, match="0 tasks"):
        clustered_interval([], 2)


def test_clustered_interval_covers_the_truth() -> None:
    rng, truth, covered = np.random.default_rng(0), 0.3, 0
    for _ in range(400):
        chances = rng.beta(0.6, 1.4, size=40)  # mean 0.3: tasks differ much
        interval = clustered_interval((rng.binomial(8, chances) / 8).tolist(), 8)
        covered += interval.low <= truth <= interval.high
    assert 0.92 <= covered / 400 <= 0.99
