"""What the solver knows about a room before it searches: distances in pushes, dead cells, and which boxes are stuck.

Sets of cells are bit masks over the board's text, so that a step of the whole set is a shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from agentbench_credit.envs.sokoban.board import FLOOR, TARGET, offsets_of

MATCHED_BOXES = 6
"""Most boxes that are matched with targets; with more, each box counts as if it went to its nearest target."""


@lru_cache(maxsize=4096)
def push_distances(static: str) -> dict[int, int]:
    """Return the fewest pushes from a cell to its nearest target, other boxes left out.

    A box on a cell that is missing here can never reach a target: the cell is dead.

    Args:
        static: A board without player and boxes.

    Returns:
        Pushes by cell, found by pulling boxes back from the targets.
    """
    free = {i for i, cell in enumerate(static) if cell in (FLOOR, TARGET)}
    return _pulled_from([i for i in sorted(free) if static[i] == TARGET], free, tuple(offsets_of(static).values()))


def _pulled_from(targets: list[int], free: set[int], offsets: tuple[int, ...]) -> dict[int, int]:
    frontier = list(targets)
    distances = dict.fromkeys(frontier, 0)
    for cell in frontier:
        for offset in offsets:
            origin = cell - offset
            if origin in free and origin - offset in free and origin not in distances:
                distances[origin] = distances[cell] + 1
                frontier.append(origin)
    return distances


@dataclass(frozen=True)
class Room:
    """Tables of one room; masks have the bits of the cells' indices in the board's text."""

    stride: int
    """What a step down adds to an index."""
    offsets: tuple[int, ...]
    """What up, down, left and right add to an index."""
    floor: int
    """Cells that are no wall."""
    goal: int
    """The targets."""
    alive: int
    """Cells from which a box alone can reach a target."""
    walls: int
    """All other cells of the text."""
    pinned: tuple[int, int]
    """Cells both of whose neighbours to the sides, and up and down, are dead."""
    distances: tuple[dict[int, int], ...]
    """For each target the fewest pushes by cell; with more than `MATCHED_BOXES` targets only those to the nearest."""


@lru_cache(maxsize=1024)
def room_of(static: str) -> Room:
    """Return the tables of a room.

    Args:
        static: A board without player and boxes.

    Returns:
        The tables.
    """
    free = {i for i, cell in enumerate(static) if cell in (FLOOR, TARGET)}
    targets = [i for i in sorted(free) if static[i] == TARGET]
    offsets = offsets_of(static)
    nearest = push_distances(static)
    distances: tuple[dict[int, int], ...] = (nearest,)
    if len(targets) <= MATCHED_BOXES:
        distances = tuple(_pulled_from([target], free, tuple(offsets.values())) for target in targets)
    whole = (1 << len(static)) - 1
    floor, alive = _mask(free), _mask(nearest)
    dead, stride = whole & ~alive, offsets["down"]
    pinned = (dead << 1 & dead >> 1, dead << stride & dead >> stride)
    ways = tuple(offsets.values())
    return Room(stride, ways, floor, _mask(targets), alive, whole & ~floor, pinned, distances)


def _mask(cells: set[int] | list[int] | dict[int, int]) -> int:
    return sum(1 << cell for cell in cells)


def stuck(room: Room, boxes: int) -> int:
    """Return the boxes that can never be pushed to any use.

    A box is held along an axis by a wall or a held box at either side, or by dead cells at both. The largest set of
    boxes that hold each other along both axes is what remains when the others are taken out one round after another.

    Args:
        room: The room.
        boxes: Mask of the boxes.

    Returns:
        Mask of those boxes; if one of them is not on a target the level is lost.
    """
    stride, walls = room.stride, room.walls
    sideways, upright = room.pinned
    held, before = boxes, 0
    while held != before:
        before = held
        solid = walls | held
        held &= (solid << 1 | solid >> 1 | sideways) & (solid << stride | solid >> stride | upright)
    return held


def pushes_left(room: Room, boxes: int) -> int | None:
    """Return how many pushes a level needs at least, None if it is seen to be lost.

    Each box is matched with a target of its own so that the sum of distances is least. One push changes one distance
    by one, so the bound falls by at most one with it.

    Args:
        room: The room.
        boxes: Mask of the boxes.

    Returns:
        The bound, None if boxes are stuck off targets or no matching exists.
    """
    if stuck(room, boxes) & ~room.goal:
        return None
    cells = _cells(boxes)
    if len(room.distances) == 1:
        nearest = room.distances[0]
        return sum(nearest[cell] for cell in cells) if all(cell in nearest for cell in cells) else None
    return _matching(room.distances, cells)


def _cells(mask: int) -> list[int]:
    cells = []
    while mask:
        lowest = mask & -mask
        cells.append(lowest.bit_length() - 1)
        mask ^= lowest
    return cells


def _matching(distances: tuple[dict[int, int], ...], cells: list[int]) -> int | None:
    """Return the least sum of distances over all ways to give each box a target of its own, box after box."""
    sums = {0: 0}
    for cell in cells:
        options = [(1 << which, column[cell]) for which, column in enumerate(distances) if cell in column]
        following: dict[int, int] = {}
        for taken, total in sums.items():
            for bit, distance in options:
                if taken & bit:
                    continue
                after, longer = taken | bit, total + distance
                if longer < following.get(after, longer + 1):
                    following[after] = longer
        sums = following
    return min(sums.values(), default=None)


def walk_layers(room: Room, player: int, boxes: int) -> list[int]:
    """Return which cells the player reaches with 0, 1, 2, ... steps, pushing nothing.

    Args:
        room: The room.
        player: Mask of the player's cell.
        boxes: Mask of the boxes.

    Returns:
        Masks of cells by number of steps.
    """
    stride, free = room.stride, room.floor & ~boxes & ~player
    layers = [player]
    front = player
    while front := (front << 1 | front >> 1 | front << stride | front >> stride) & free:
        layers.append(front)
        free &= ~front
    return layers
