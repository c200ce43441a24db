"""The named settings of WebShop: which shop is played, which goals, how many turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentbench_credit.errors import EnvironmentContractError


@dataclass(frozen=True)
class Preset:
    """Where products and goals come from."""

    goals: Literal["embedded", "human", "synthetic"]
    """``"embedded"``: always the made-up shop. Otherwise which goals of the official data are played; where
    ``$WEBSHOP_DATA`` is not set, the made-up shop takes their place, which panel name and info say."""
    turns: int = 15
    """Turn limit of an episode."""


PRESETS = {
    "embedded": Preset("embedded"),
    "webshop": Preset("human"),
    "webshop-synthetic": Preset("synthetic"),
}


def find_preset(name: str) -> Preset:
    """Return a preset by its name.

    Raises:
        EnvironmentContractError: There is no such preset.
    """
    if name not in PRESETS:
        raise EnvironmentContractError(f"no WebShop preset {name!r}", mend=f"known: {', '.join(PRESETS)}")
    return PRESETS[name]
