"""Tool use: conversations with a user in which the policy calls functions, by the rules of public benchmarks."""

from __future__ import annotations

from agentbench_credit.env import Environment, Panel


def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel; see `agentbench_credit.envs.tools.panels.load_panel`."""
    import agentbench_credit.envs.tools.panels as panels

    return panels.load_panel(preset, split)


ENVIRONMENT = Environment(
    name="tools",
    id="agentbench/Tools-v0",
    entry_point="agentbench_credit.envs.tools.env:ToolsEnv",
    presets=("bfcl-multi-turn", "bfcl-single-turn", "tau2-retail", "tau2-airline", "tooltalk"),
    load_panel=load_panel,
    splits=("test",),
)
