"""Speed of the credit methods on made-up batches: ``python -m agentbench_credit.bench --only credit``."""

from __future__ import annotations

import statistics
import time

import numpy as np

from agentbench_credit.batch import SIGNAL_LEVELS, TERMINAL, CreditBatch, Floats
from agentbench_credit.credit import METHODS

ROLLOUTS, TURNS = 128, 4_000
"""The size of one update in the published ALFWorld setting: 16 tasks of 8 rollouts."""
GROWTH = 100
"""How many times larger the batch is on which linear growth is measured."""


def made_up_batch(rollouts: int, turns: int, tokens_per_turn: int = 0, *, seed: int = 0) -> CreditBatch:
    """Return a random batch in groups of 8, with about half of the turns in states that are visited more than once.

    Args:
        rollouts: Number of rollouts, a multiple of 8.
        turns: Number of turns in all, spread unevenly over the rollouts.
        tokens_per_turn: Mean number of response tokens of a turn.
        seed: Seed of the random numbers.

    Returns:
        A batch with all signals.
    """
    rng = np.random.default_rng(seed)
    turn_counts = 1 + rng.multinomial(turns - rollouts, rng.dirichlet(np.full(rollouts, 5.0)))
    token_counts = rng.integers(0, 2 * tokens_per_turn + 1, turns)
    tokens = int(token_counts.sum())
    success = rng.random(rollouts) < 0.5
    last = np.cumsum(turn_counts) - 1
    reward = np.full(turns, -0.1)
    reward[last[success]] = 10.9
    group = np.arange(rollouts) // 8
    states_per_group = 8 * turns // rollouts
    state = np.repeat(group, turn_counts) * states_per_group + rng.integers(0, states_per_group, turns)
    return CreditBatch(
        group=group,
        included=np.ones(rollouts, dtype=bool),
        success=success,
        truncated=~success,
        final_state=np.full(rollouts, TERMINAL),
        turn_offsets=np.append(0, last + 1),
        token_offsets=np.append(0, np.cumsum(token_counts)),
        state=state,
        action=rng.integers(0, 4, turns),
        reward=reward,
        penalty=np.zeros(turns),
        penalty_in_reward=True,
        logp=np.log(rng.uniform(0.05, 1.0, tokens)),
        labels=[f"{g}/{i % 8}" for i, g in enumerate(group)],
        signals={
            "entropy": _single(rng.exponential(0.5, tokens)),
            "teacher_logp": _single(np.log(rng.uniform(0.05, 1.0, tokens))),
            "kl": _single(rng.exponential(0.1, tokens)),
            "kl_topk": _single(rng.exponential(0.1, tokens)),
            "taught": np.ones(turns),
            "values": rng.uniform(0.0, 10.0, turns),
            "final_values": rng.uniform(0.0, 10.0, rollouts),
            "rollout_values": rng.uniform(0.0, 10.0, turns),
        },
    )


def _single(values: Floats) -> Floats:
    """Return numbers with the precision that trainers compute token signals in."""
    return values.astype(np.float32).astype(np.float64)


def seconds(method: str, *size: int, repeats: int) -> float:
    """Return the median seconds of one call of a method, each time on a batch that has computed nothing yet.

    Args:
        method: A registered name.
        *size: Arguments of `made_up_batch`.
        repeats: Number of calls.

    Returns:
        The median.
    """
    function = METHODS.get(method)
    times = []
    for repeat in range(repeats):
        batch = made_up_batch(*size, seed=repeat)
        start = time.perf_counter()
        function(batch)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def bench() -> dict[str, float]:
    """Measure every registered method: milliseconds at 4,000 turns, growth to 400,000; tokens a second if it reads any.

    Returns:
        By measure's name: ``grpo ms``, ``grpo turns/s``, ``grpo time at 100x work``, ``gear Mtokens/s``.
    """
    results = {}
    for name in METHODS.names():
        method = METHODS.get(name)
        label = f"{name} (a reconstruction)" if method.is_reconstruction else name
        if any(signal not in SIGNAL_LEVELS for signal in method.signals_for({})):
            tokens = made_up_batch(ROLLOUTS, TURNS, 250).n_tokens
            results[f"{label} Mtokens/s"] = tokens / seconds(name, ROLLOUTS, TURNS, 250, repeats=5) / 1e6
            continue
        small = seconds(name, ROLLOUTS, TURNS, repeats=50)
        large = seconds(name, ROLLOUTS * GROWTH, TURNS * GROWTH, repeats=5)
        results[f"{label} ms"] = small * 1e3
        results[f"{label} turns/s"] = TURNS * GROWTH / large
        results[f"{label} time at {GROWTH}x work"] = large / small
    return results
