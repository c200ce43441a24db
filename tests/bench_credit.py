"""Each credit method beside its loop reference, at the size of one update: ``make bench`` runs it."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import references
from agentbench_credit.credit import METHODS

GROUPS, MEMBERS, TURNS = 16, 8, 250
"""Tasks, rollouts of each, and turns of each task's rollouts in all: 128 rollouts with 4,000 turns."""


def made_up_world(groups: int, *, seed: int) -> references.World:
    """Rollouts of 31 or 32 turns, about half of them in states that are visited more than once."""
    rng = random.Random(seed)
    lengths = [TURNS // MEMBERS + (i < TURNS % MEMBERS) for i in range(MEMBERS)]
    rewards = [-0.1, -0.1, -0.1, 10.9]
    return [[references.random_rollout(rng, length, TURNS, rewards, 0.0) for length in lengths] for _ in range(groups)]


def seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def row(name: str, *, groups: int, repeats: int) -> tuple[float, float, float]:
    """Milliseconds of a method on all groups and of its reference, and how far apart their results lie.

    The reference calculates in exact fractions and takes one group at a time: it is timed on one, times the number of
    groups. The results are compared on that group.
    """
    method, reference = METHODS.get(name), references.REFERENCES[name]
    worlds = [made_up_world(groups, seed=seed) for seed in range(repeats)]
    method(references.build(worlds[0]))
    ours = statistics.median([seconds(lambda batch=batch: method(batch)) for batch in map(references.build, worlds)])
    small = made_up_world(1, seed=0)
    began = time.perf_counter()
    expected = references.flat(reference(small))
    theirs = (time.perf_counter() - began) * groups
    return ours * 1e3, theirs * 1e3, float(np.abs(method(references.build(small)).values - expected).max())


def main(*, groups: int = GROUPS, repeats: int = 9) -> Table:
    """The table."""
    size = f"{groups * MEMBERS} rollouts, {groups * TURNS:,} turns"
    table = Table("method", title=f"credit methods: {size}", caption="¹ a reconstruction; the reference is of it too")
    for column in ("ms", "loop reference ms", "ratio", "largest difference"):
        table.add_column(column, justify="right")
    for name in references.REFERENCES:
        print(f"measuring {name} …", file=sys.stderr)
        ours, theirs, difference = row(name, groups=groups, repeats=repeats)
        label = f"{name} ¹" if METHODS.get(name).is_reconstruction else name
        table.add_row(label, f"{ours:.2f}", f"{theirs:,.0f}", f"{theirs / ours:,.0f}", f"{difference:.0e}")
    return table


if __name__ == "__main__":
    Console().print(main())
