"""The named settings of tool use: which benchmark is played, by which host, for how many turns."""

from __future__ import annotations

from dataclasses import dataclass

from agentbench_credit.errors import EnvironmentContractError


@dataclass(frozen=True)
class Preset:
    """One benchmark."""

    host: str
    """``"module:factory"`` of the benchmark's part."""
    turns: int
    """Turn limit of an episode; larger than what the benchmark itself allows."""
    seconds: float
    """Deadline of a turn."""
    has_user: bool = False
    """Whether somebody plays the user, so that the argument ``user`` has a meaning."""


PRESETS = {
    "bfcl-multi-turn": Preset("agentbench_credit.envs.tools.bfcl:BfclHost", turns=200, seconds=30.0),
    "bfcl-single-turn": Preset("agentbench_credit.envs.tools.bfcl_single:BfclSingleHost", turns=2, seconds=30.0),
    "tau2-retail": Preset("agentbench_credit.envs.tools.tau2:retail", turns=120, seconds=120.0, has_user=True),
    "tau2-airline": Preset("agentbench_credit.envs.tools.tau2:airline", turns=120, seconds=120.0, has_user=True),
    "tooltalk": Preset("agentbench_credit.envs.tools.tooltalk:ToolTalkHost", turns=200, seconds=60.0),
}


def find_preset(name: str) -> Preset:
    """Return a preset by its name.

    Raises:
        EnvironmentContractError: There is no such preset.
    """
    if name not in PRESETS:
        raise EnvironmentContractError(f"no tools preset {name!r}", mend=f"known: {', '.join(PRESETS)}")
    return PRESETS[name]
