"""Speed of tool use: ``python -m agentbench_credit.envs.tools.bench``."""

from __future__ import annotations

import time

from agentbench_credit.command import run_command
from agentbench_credit.envs.tools.env import ToolsEnv
from agentbench_credit.envs.tools.presets import PRESETS

TASKS = 20


def bench() -> dict[str, float]:
    """Play the first tasks of each preset with its expert.

    Returns:
        By preset: seconds to build an environment and start a first task, in a new process; milliseconds of a later
        reset; steps a second, the expert's thoughts not counted.
    """
    speeds: dict[str, float] = {}
    for preset in PRESETS:
        began = time.perf_counter()
        env = ToolsEnv(preset)
        try:
            env.reset(options={"task": env.panel.tasks[0].id})
            speeds[f"{preset}: first reset s"] = time.perf_counter() - began
            resets, steps, count = _play(env)
        finally:
            env.close()
        speeds[f"{preset}: reset ms"] = 1e3 * resets / TASKS
        speeds[f"{preset}: steps/s"] = count / steps
    return speeds


def _play(env: ToolsEnv) -> tuple[float, float, int]:
    """Return the seconds of resets and of steps, and the number of steps."""
    resets, steps, count = 0.0, 0.0, 0
    for task in env.panel.tasks[:TASKS]:
        began = time.perf_counter()
        env.reset(options={"task": task.id})
        resets += time.perf_counter() - began
        over = False
        while not over:
            action = env.expert_action() or ""
            began = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            steps += time.perf_counter() - began
            count, over = count + 1, terminated or truncated
    return resets, steps, count


def main(argv: list[str] | None = None) -> None:
    """Print what `bench` measures; there are no arguments."""
    del argv
    for name, value in bench().items():
        print(f"{name}: {value:,.2f}")


if __name__ == "__main__":
    run_command(main)
