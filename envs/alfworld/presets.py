"""The named settings of ALFWorld: which games are played."""

from __future__ import annotations

from agentbench_credit.errors import EnvironmentContractError

TURNS = 50
"""Turn limit of an episode, the papers'."""

PRESETS = {
    "small": "generated games in scenes cut down to eight receptacles; always the embedded panel",
    "full": "generated games in whole scenes; always the embedded panel",
    "standard": "the official games if $ALFWORLD_DATA holds them, else those of full; the panel's name says which",
}
"""What each preset plays, by name."""


def check_preset(name: str) -> None:
    """Do nothing if there is such a preset.

    Args:
        name: The preset.

    Raises:
        EnvironmentContractError: There is none.
    """
    if name not in PRESETS:
        raise EnvironmentContractError(f"no ALFWorld preset {name!r}", mend=f"known: {', '.join(PRESETS)}")
