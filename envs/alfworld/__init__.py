"""ALFWorld: household tasks in text, on the official games or on an embedded panel of generated ones."""

from __future__ import annotations

from agentbench_credit.env import Environment, Panel


def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel; see `agentbench_credit.envs.alfworld.games.load_panel`."""
    import agentbench_credit.envs.alfworld.games as games

    return games.load_panel(preset, split)


ENVIRONMENT = Environment(
    name="alfworld",
    id="agentbench/ALFWorld-v0",
    entry_point="agentbench_credit.envs.alfworld.env:AlfworldEnv",
    presets=("small", "full", "standard"),
    load_panel=load_panel,
)
