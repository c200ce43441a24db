"""Known cases of group advantages, each on rollouts of the given lengths."""

from __future__ import annotations

from typing import Any

import pytest

from agentbench_credit.batch import CreditBatch
from agentbench_credit.credit import METHODS

Groups = list[list[float | None]]


def batch_of(returns: Groups, turns: list[list[int]] | None = None) -> CreditBatch:
    """Rollouts that get their whole return on their last turn."""
    turns = turns or [[1] * len(group) for group in returns]
    return CreditBatch.from_rewards(
        [
            [[*[0.0] * (length - 1), value] for value, length in zip(group, lengths, strict=True)]
            for group, lengths in zip(returns, turns, strict=True)
        ]
    )


Case = tuple[str, str, dict[str, Any], Groups, list[list[int]] | None, list[list[float]]]
CASES: list[Case] = [
    ("one rollout in the group", "grpo", {}, [[1.0]], None, [[0.0]]),
    ("all equal", "grpo", {}, [[1.0, 1.0, 1.0]], None, [[0.0, 0.0, 0.0]]),
    ("ddof 1", "grpo", {"ddof": 1, "eps": 0.0}, [[1.0, 0.0]], None, [[0.70710678, -0.70710678]]),
    ("ddof 0", "grpo", {"ddof": 0, "eps": 0.0}, [[1.0, 0.0]], None, [[1.0, -1.0]]),
    ("ragged groups", "rloo", {}, [[1.0, 0.0, 0.0], [2.0, 0.0]], None, [[1.0, -0.5, -0.5], [2.0, -2.0]]),
    ("missing reward leaves its siblings alone", "dr_grpo", {}, [[1.0, None, 0.0]], None, [[0.5, 0.0, -0.5]]),
    ("long rollouts do not weigh more", "dr_grpo", {}, [[10.0, 0.0]], [[2, 8]], [[5.0, -5.0]]),
]


@pytest.mark.parametrize(
    ("method", "params", "returns", "turns", "advantages"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_case(
    method: str,
    params: dict[str, Any],
    returns: Groups,
    turns: list[list[int]] | None,
    advantages: list[list[float]],
) -> None:
    values = METHODS.get(method)(batch_of(returns, turns), **params).values
    assert values == pytest.approx([a for group in advantages for a in group], abs=1e-8)
