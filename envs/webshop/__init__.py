"""WebShop: find and buy what an instruction describes; the official rules, in a made-up shop or the official one."""

from __future__ import annotations

from agentbench_credit.env import Environment, Panel


def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel; see `agentbench_credit.envs.webshop.panels.load_panel`."""
    import agentbench_credit.envs.webshop.panels as panels

    return panels.load_panel(preset, split)


ENVIRONMENT = Environment(
    name="webshop",
    id="agentbench/WebShop-v0",
    entry_point="agentbench_credit.envs.webshop.env:WebShopEnv",
    presets=("embedded", "webshop", "webshop-synthetic"),
    load_panel=load_panel,
)
