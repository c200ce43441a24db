"""The benchmark's own batch, and growth that is nowhere near quadratic."""

from __future__ import annotations

import numpy as np
import pytest

from agentbench_credit.credit.bench import made_up_batch, seconds


def test_the_made_up_batch_has_the_asked_size_and_repeats_states() -> None:
    batch = made_up_batch(16, 200, 5)
    assert (batch.n_trajectories, batch.n_turns) == (16, 200)
    assert batch.turn_counts.min() >= 1
    assert len(np.unique(batch.turn_counts)) > 1
    shared = np.unique(batch.state, return_counts=True)[1]
    assert 0.2 < np.mean(shared > 1) < 0.9
    token_signals = {"entropy", "teacher_logp", "kl", "kl_topk"}
    assert batch.signals.keys() == token_signals | {"taught", "values", "final_values", "rollout_values"}


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo", "rlsd", "gear"])
def test_a_hundred_times_the_work_takes_far_less_than_ten_thousand_times_as_long(method: str) -> None:
    small = seconds(method, 16, 500, 4, repeats=5)
    large = seconds(method, 1600, 50_000, 4, repeats=3)
    assert large < 500 * small
