"""Speed of the Sokoban environment: ``python -m agentbench_credit.envs.sokoban.bench``."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agentbench_credit.envs.sokoban.board import read_board
from agentbench_credit.envs.sokoban.env import MOVES, SokobanEnv
from agentbench_credit.envs.sokoban.generate import generate
from agentbench_credit.envs.sokoban.room import push_distances, room_of
from agentbench_credit.envs.sokoban.solver import solve, solve_pushes
from agentbench_credit.envs.sokoban.sprites import draw_board
from agentbench_credit.envs.sokoban.xsb import from_xsb, read_xsb

STEPS = 50_000
LEVELS = 300
REPEATS = 3
BOXOBAN_EVERY = 20
"""Of Boxoban's first thousand unfiltered test levels each one with a number that this divides is solved."""
BOXOBAN_SECONDS = 2.0
"""Time in which a Boxoban level counts as solved."""

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
        solving a level (median and largest); pictures of 6x6 a second; milliseconds of generating a 6x6 level with one
        box and an 8x8 level with two (mean, rooms that come to nothing included); where ``AGENTBENCH_DATA`` has
        Boxoban's levels, by both measures of the solver the share solved within `BOXOBAN_SECONDS` and the median
        milliseconds; then `GYM_SOKOBAN`.
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

    def draw() -> None:
        for number in range(STEPS // 10):
            draw_board(boards[number % len(boards)])

    for cached in (read_board, push_distances, solve):
        cached.cache_clear()
    solving = [_seconds(partial(solve, board)) for board in boards]
    speeds = {
        "steps/s": STEPS / min(_seconds(play) for _ in range(REPEATS)),
        "reset microseconds": 1e6 * min(_seconds(reset) for _ in range(REPEATS)) / LEVELS,
        "solver median ms": 1e3 * statistics.median(solving),
        "solver largest ms": 1e3 * max(solving),
        "pictures/s": STEPS // 10 / min(_seconds(draw) for _ in range(REPEATS)),
        "generate 6x6-1box ms": 1e3 * _generation_seconds(6, 1),
        "generate 8x8-2box ms": 1e3 * _generation_seconds(8, 2),
    }
    return speeds | _boxoban() | GYM_SOKOBAN


def _boxoban() -> dict[str, float]:
    """Solve levels by both measures, without anything remembered from before."""
    folder = os.environ.get("AGENTBENCH_DATA")
    if not folder:
        return {}
    levels = read_xsb(Path(folder) / "boxoban" / "unfiltered-test-000.txt")[::BOXOBAN_EVERY]
    speeds: dict[str, float] = {}
    for measure, solver in (("moves", solve.__wrapped__), ("pushes", solve_pushes.__wrapped__)):
        room_of.cache_clear()
        push_distances.cache_clear()
        times = []
        for level in levels:
            began = time.perf_counter()
            solved = solver(level.board).status == "solved"
            times.append(time.perf_counter() - began if solved else float("inf"))
        share = sum(spent <= BOXOBAN_SECONDS for spent in times) / len(times)
        speeds[f"boxoban fewest {measure}: share in {BOXOBAN_SECONDS:g} s"] = share
        speeds[f"boxoban fewest {measure}: median ms"] = 1e3 * statistics.median(times)
    return speeds


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
