"""The named settings of Sokoban: board size, number of boxes, turn limit, moves per turn."""

from __future__ import annotations

from dataclasses import dataclass

from agentbench_credit.errors import EnvironmentContractError


@dataclass(frozen=True)
class Preset:
    """How levels look and how they are played."""

    panel: str
    """Panel that the levels come from; presets with one panel share tasks and splits."""
    rows: int
    """Height of the board, walls included."""
    cols: int
    """Width of the board, walls included."""
    boxes: int
    """Number of boxes, which is also the number of targets."""
    turns: int
    """Turn limit of an episode."""
    moves_per_turn: int
    """Most moves that one action may hold."""
    shortest_plan: int
    """Levels whose optimal plan has fewer moves are not used."""
    longest_plan: int
    """Levels whose optimal plan has more moves are not used."""
    walk: int = 0
    """Random steps without pushing that the player takes before the level begins."""
    image: bool = False
    """Whether the board is shown as a picture instead of text."""


# A level that one move solves is no test: random moves solve three quarters of those. RAGEN moves the player before the
# level begins; with plans of six moves and more no level of that preset can be solved in one turn of five moves.
PRESETS = {
    "6x6-1box": Preset(
        "6x6-1box", rows=6, cols=6, boxes=1, turns=15, moves_per_turn=1, shortest_plan=2, longest_plan=15
    ),
    "embedded": Preset(
        "6x6-1box", rows=6, cols=6, boxes=1, turns=5, moves_per_turn=5, shortest_plan=2, longest_plan=15
    ),
    "ragen": Preset(
        "ragen", rows=6, cols=6, boxes=1, turns=5, moves_per_turn=5, shortest_plan=6, longest_plan=15, walk=24
    ),
    "8x8-2box": Preset(
        "8x8-2box", rows=8, cols=8, boxes=2, turns=50, moves_per_turn=1, shortest_plan=2, longest_plan=50
    ),
    "visual": Preset(
        "6x6-1box", rows=6, cols=6, boxes=1, turns=15, moves_per_turn=1, shortest_plan=2, longest_plan=15, image=True
    ),
    "10x10-3box": Preset(
        "10x10-3box", rows=10, cols=10, boxes=3, turns=75, moves_per_turn=1, shortest_plan=10, longest_plan=75
    ),
    "10x10-4box": Preset(
        "10x10-4box", rows=10, cols=10, boxes=4, turns=100, moves_per_turn=1, shortest_plan=15, longest_plan=100
    ),
}


def find_preset(name: str) -> Preset:
    """Return a preset by its name.

    Raises:
        EnvironmentContractError: There is no such preset.
    """
    if name not in PRESETS:
        raise EnvironmentContractError(f"no Sokoban preset {name!r}", mend=f"known: {', '.join(PRESETS)}")
    return PRESETS[name]
