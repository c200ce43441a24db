"""Speed of the ALFWorld environment: ``python -m agentbench_credit.envs.alfworld.bench``."""

from __future__ import annotations

import importlib.util
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from agentbench_credit.envs.alfworld import game as compiled_games
from agentbench_credit.envs.alfworld.engine import Engine
from agentbench_credit.envs.alfworld.env import AlfworldEnv
from agentbench_credit.envs.alfworld.games import game_file
from agentbench_credit.envs.alfworld.plan import plan
from agentbench_credit.envs.alfworld.textworld_engine import TextWorldEngine

GAMES = 20
"""Games of the test split that are measured."""
GROUP = 8
"""Episodes of each game, as in training."""
REAL_STEPS = 100
"""Random steps in the real engine."""


def bench() -> dict[str, float]:
    """Measure both engines.

    Returns:
        For the compiled engine by CPU time: random steps a second, resets included, in small and in full scenes, with
        each game played `GROUP` times and only once; milliseconds of a reset to a game seen for the first time and to
        one seen before, and of a shortest plan, in full scenes (mean and largest). Then, where TextWorld is installed,
        steps and resets of the real engine in full scenes by wall clock, since it works in another process.
    """
    speeds = {f"{preset} steps/s": _steps(preset, GROUP) for preset in ("small", "full")}
    speeds |= {f"{preset} steps/s, games new": _steps(preset, 1) for preset in ("small", "full")}
    env = AlfworldEnv("full", "test")
    tasks = [task.id for task in env.panel.tasks[:GAMES]]
    files = [game_file(env.panel, env.panel[task]) for task in tasks]
    compiled_games.forget()
    first = [_seconds(lambda task=task: env.reset(options={"task": task})) for task in tasks]  # type: ignore[misc]
    again = [_seconds(lambda task=task: env.reset(options={"task": task})) for task in tasks]  # type: ignore[misc]
    games = [compiled_games.load_game(file) for file in files]
    plans = [_seconds(lambda game=game: plan(game, game.world.first)) for game in games]  # type: ignore[misc]
    for name, seconds in (("first reset", first), ("reset", again), ("plan", plans)):
        speeds[f"full {name} ms"] = 1e3 * statistics.mean(seconds)
        speeds[f"full {name} largest ms"] = 1e3 * max(seconds)
    if importlib.util.find_spec("textworld") is not None:
        speeds |= _real(files)
    return speeds


def _steps(preset: str, group: int) -> float:
    """Return steps a second of CPU time, each game played `group` times, as in training."""
    env, rng = AlfworldEnv(preset, "test"), random.Random(0)
    tasks = [task.id for task in env.panel.tasks[:GAMES] for _ in range(group)]
    compiled_games.forget()
    steps, began = 0, time.process_time()
    for task in tasks:
        _, info = env.reset(options={"task": task})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(rng.choice(info["admissible_actions"]))
            over = terminated or truncated
            steps += 1
    return steps / (time.process_time() - began)


def _real(files: list[Path]) -> dict[str, float]:
    """Measure the real engine, whose process is warm."""
    engine: Engine = TextWorldEngine()
    try:
        engine.start(files[0])
        resets = [_seconds(lambda: engine.start(files[1]), time.perf_counter) for _ in range(2)]
        rng, reply = random.Random(0), engine.start(files[1])
        began = time.perf_counter()
        for _ in range(REAL_STEPS):
            reply = engine.act(rng.choice(reply.admissible))
        speed = REAL_STEPS / (time.perf_counter() - began)
    finally:
        engine.close()
    return {
        "full TextWorld steps/s": speed,
        "full TextWorld first reset ms": 1e3 * resets[0],
        "full TextWorld reset ms": 1e3 * resets[1],
    }


def _seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    work()
    return clock() - began


if __name__ == "__main__":
    for name, value in bench().items():
        print(f"{name:>30}: {value:,.3f}")
