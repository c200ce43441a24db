"""Sokoban: push every box onto a target; boards as text or pictures, solver-checked levels, gym-sokoban's rewards."""

from __future__ import annotations

from agentbench_credit.env import Environment, Panel


def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel; see `agentbench_credit.envs.sokoban.panels.load_panel`."""
    import agentbench_credit.envs.sokoban.panels as panels

    return panels.load_panel(preset, split)


ENVIRONMENT = Environment(
    name="sokoban",
    id="agentbench/Sokoban-v0",
    entry_point="agentbench_credit.envs.sokoban.env:SokobanEnv",
    presets=("6x6-1box", "embedded", "ragen", "8x8-2box", "visual", "10x10-3box", "10x10-4box"),
    load_panel=load_panel,
)
