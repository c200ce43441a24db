"""Speed of the Sokoban environment: ``python -m agentbench_credit.envs.sokoban.bench``."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from agentbench_credit.envs.sokoban.board import read_board
from agentbench_credit.envs.sokoban.env import MOVES, SokobanEnv
from agentbench_credit.envs.sokoban.generate import generate
from agentbench_credit.envs.sokoban.solver import push_distances, solve
from agentbench_credit.envs.sokoban.xsb import from_xsb

STEPS = 50_000
LEVELS = 300
REPEATS = 3

GYM_SOKOBAN = {
    "gym-sokoban 0.0.6, as recorded: steps/s without a picture": 32_000.0,
    "gym-sokoban 0.0.6, as recorded: steps/s, smallest picture": 11_000.0,
    "gym-sokoban 0.0.6, as recorded: generate 6x6-1box ms": 3.0,
    "gym-sokoban 0.0.6, as recorded: generate 8x8-2box ms": 72.0,
}
"""Figures to compare with, not measured here: gym-sokoban needs old versions. README.md says how they were taken."""


def bench() -> dict[str, float]:
    """Measure on the 6x6 panel; speeds are the best of `REPEATS`, so that a busy machine counts less.

    Returns:
        Random steps a second, resets included; microseconds of a reset to a level seen before; milliseconds of
        solving a level (median and largest); milliseconds of generating a 6x6 level with one box and an 8x8 level
        with two (mean, rooms that come to nothing included); then `GYM_SOKOBAN`.
    """
    env = SokobanEnv()
    tasks = [task.id for task in env.panel.tasks[:LEVELS]]
    boards = [from_xsb(task.data) for task in env.panel.tasks[:LEVELS]]
    actions = random.Random(0).choices(MOVES, k=STEPS)

    def play() -> None:
        env.reset(options={"task": tasks[0]})
        for turn, action in enumerate(actions):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset(options={"task": tasks[turn % LEVELS]})

    def reset() -> None:
        for task in tasks:
            env.reset(options={"task": task})

    for cached in (read_board, push_distances, solve):
        cached.cache_clear()
    solving = [_seconds(partial(solve, board)) for board in boards]
    return {
        "steps/s": STEPS / min(_seconds(play) for _ in range(REPEATS)),
        "reset microseconds": 1e6 * min(_seconds(reset) for _ in range(REPEATS)) / LEVELS,
        "solver median ms": 1e3 * statistics.median(solving),
        "solver largest ms": 1e3 * max(solving),
        "generate 6x6-1box ms": 1e3 * _generation_seconds(6, 1),
        "generate 8x8-2box ms": 1e3 * _generation_seconds(8, 2),
    } | GYM_SOKOBAN


def _generation_seconds(size: int, boxes: int) -> float:
    def make() -> None:
        rng = random.Random(0)
        made = 0
        while made < LEVELS:
            made += generate(size, size, boxes, rng) is not None

    return _seconds(make) / LEVELS


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    for name, value in bench().items():
        print(f"{name:>22}: {value:,.3f}")
