"""Panels: the tasks of a benchmark in a fixed order; there is a test split only."""

from __future__ import annotations

from functools import cache

from agentbench_credit.env import Panel, Task
from agentbench_credit.envs.tools.presets import find_preset
from agentbench_credit.errors import EnvironmentContractError

VERSION = 1
"""Raised whenever a task changes."""


@cache
def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel; its data set is fetched where it is not on this machine yet.

    Args:
        preset: A name in `presets.PRESETS`.
        split: ``"test"``.

    Returns:
        The panel.

    Raises:
        EnvironmentContractError: Unknown preset or split.
    """
    find_preset(preset)
    if split != "test":
        mend = "these benchmarks are for testing alone: use the split test"
        raise EnvironmentContractError(f"no split {split!r}", where=preset, mend=mend)
    return Panel(preset, split, VERSION, tuple(_tasks(preset)))


def _tasks(preset: str) -> list[Task]:
    """Return the tasks; a benchmark's module is loaded only where it is played."""
    if preset == "bfcl-multi-turn":
        from agentbench_credit.envs.tools.bfcl import tasks

        return tasks()
    if preset == "bfcl-single-turn":
        from agentbench_credit.envs.tools.bfcl_single import tasks as questions

        return questions()
    if preset == "tooltalk":
        from agentbench_credit.envs.tools.tooltalk import tasks as conversations

        return [Task(f"tooltalk/{name}", data) for name, data in conversations().items()]
    from agentbench_credit.envs.tools.tau2_domain import tasks as tickets

    domain = preset.removeprefix("tau2-")
    return [Task(f"{domain}/{name}", data) for name, data in tickets(domain).items()]
