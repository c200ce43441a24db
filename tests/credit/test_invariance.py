"""What must not matter: the order of rollouts, other groups, how a batch is cut, and rollouts that are left out."""

from __future__ import annotations

import copy
import random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import references
from agentbench_credit.batch import SIGNAL_LEVELS, CreditBatch
from agentbench_credit.credit import METHODS
from agentbench_credit.credit.method import SignalName

BATCH_WIDE = ("reinforce_pp", "empg", "high_entropy", "gae")
"""Methods with a statistic over the whole batch: other groups matter to them."""
GROUP_LOCAL = tuple(name for name in METHODS.names() if name not in BATCH_WIDE)
OTHER_THAN_RETURNS = ("gae", "vineppo", "mt_grpo", "graft", "g2po", "rtmc", "empg")
"""Methods that give credit where all returns of a group are equal and no state repeats: from values, single rewards or
distances. Where states repeat, the methods that compare visits do so too, since returns-to-go differ within a rollout.
"""

Member = tuple[int, int]


def by_member(
    method: str, world: references.World, order: list[Member] | None = None
) -> dict[Member, NDArray[np.float64]]:
    """The advantages of each rollout's tokens and turns."""
    order = references.members(world) if order is None else order
    batch = references.build(world, order)
    credit = METHODS.get(method)(batch)
    index = {
        "trajectory": np.arange(batch.n_trajectories),
        "turn": batch.trajectory_of_turn,
        "token": batch.trajectory_of_token,
    }[credit.level]
    return {member: credit.values[index == i] for i, member in enumerate(order)}


@pytest.mark.parametrize("method", METHODS.names())
@given(world=references.worlds(), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_permuting_rows_and_groups_permutes_the_output(method: str, world: references.World, seed: int) -> None:
    order = references.members(world)
    random.Random(seed).shuffle(order)
    before, after = by_member(method, world), by_member(method, world, order)
    for member in order:
        np.testing.assert_allclose(after[member], before[member], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", GROUP_LOCAL)
@given(world=references.worlds())
@settings(max_examples=15)
def test_duplicated_groups_change_nothing(method: str, world: references.World) -> None:
    before, after = by_member(method, world), by_member(method, world + copy.deepcopy(world))
    for (g, i), values in before.items():
        np.testing.assert_array_equal(after[g, i], values)
        np.testing.assert_array_equal(after[g + len(world), i], values)


@pytest.mark.parametrize("method", GROUP_LOCAL)
@given(world=references.worlds())
@settings(max_examples=15)
def test_a_batch_split_by_groups_is_the_whole(method: str, world: references.World) -> None:
    whole = by_member(method, world)
    for g, group in enumerate(world):
        for (_, i), values in by_member(method, [group]).items():
            np.testing.assert_array_equal(values, whole[g, i])


@pytest.mark.parametrize("method", METHODS.names())
@given(world=references.worlds())
@settings(max_examples=20)
def test_excluded_rollouts_get_zero_and_leave_their_siblings_alone(method: str, world: references.World) -> None:
    everyone = by_member(method, world)
    kept = [member for member in everyone if world[member[0]][member[1]].counts]
    alone = by_member(method, world, kept)
    for member, values in everyone.items():
        np.testing.assert_array_equal(values, alone[member] if member in alone else np.zeros(len(values)))


@pytest.mark.parametrize("method", [name for name in METHODS.names() if name not in OTHER_THAN_RETURNS])
@pytest.mark.parametrize(
    "group",
    [[[10.0]], [[0.1, 0.1, 0.1], [0.3], [0.2, 0.1]], [[1 / 3] * 3, [1.0]], [[10.9 - 0.1 * 3, 0.1, 0.1, 0.1], [10.9]]],
)
def test_a_group_of_one_or_with_equal_returns_is_exactly_zero(method: str, group: list[list[float]]) -> None:
    turns = sum(map(len, group))  # of one token each
    sizes = {"trajectory": len(group), "turn": turns, "token": turns}
    signals = {name: np.linspace(0.1, 1.0, sizes[SIGNAL_LEVELS.get(name, "token")]) for name in get_args(SignalName)}
    batch = CreditBatch.from_rewards([group], signals=signals)
    defaults = METHODS.get(method).params
    credit = METHODS.get(method)(batch, **({"eps": 0.0} if "eps" in defaults else {}))
    assert not credit.values.any()
    assert credit.diagnostics["zero_signal_groups"] == 1
