"""Levels as gym-sokoban makes them: a random walk carves a room, then the game is played backwards.

Written from the published algorithm (M. Schrader, gym-sokoban) without its global state. Only `random.Random.random`
is used, whose stream is the same in every Python version.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from agentbench_credit.envs.sokoban.board import (
    BOX,
    BOX_ON_TARGET,
    DIRECTIONS,
    FLOOR,
    PLAYER,
    TARGET,
    WALL,
    move,
    offsets_of,
    static_part,
)

T = TypeVar("T")

_TURN_CHANCE = 0.35
_MASKS = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
_DEPTH = 299
"""Most states on a path of the backward search."""
_EXPLORED = 300_000
"""States after which the backward search stops."""

_Node = tuple[int, tuple[int, ...], int, int, int, int]
"""Player; boxes in the order of the targets they started on; the same boxes as a bit mask of cells; bit mask of the
boxes ever pulled; number of pulls; states that may still follow on the path."""


def generate(rows: int, cols: int, boxes: int, rng: random.Random) -> str | None:
    """Make one level.

    Args:
        rows: Height, walls included.
        cols: Width, walls included.
        boxes: Number of boxes.
        rng: Source of randomness.

    Returns:
        The board, None if the room is too small or no state of it scores above 0.
    """
    room = make_room(rows, cols, boxes, rng)
    return None if room is None else play_backwards(room)


def make_room(rows: int, cols: int, boxes: int, rng: random.Random) -> str | None:
    """Carve a room and place the player and, on their targets, the boxes.

    Args:
        rows: Height, walls included.
        cols: Width, walls included.
        boxes: Number of boxes.
        rng: Source of randomness.

    Returns:
        A solved board, None if the room is too small.
    """
    floor = _carve(rows, cols, rng)
    if len(floor) <= boxes + 1:
        return None
    cells = list("\n".join([WALL * cols] * rows))
    for cell in floor:
        cells[cell] = FLOOR
    for symbol in (PLAYER, *BOX_ON_TARGET * boxes):
        cells[floor.pop(int(rng.random() * len(floor)))] = symbol
    return "".join(cells)


def _choose(options: Sequence[T], rng: random.Random) -> T:
    return options[int(rng.random() * len(options))]


def _carve(rows: int, cols: int, rng: random.Random) -> list[int]:
    """Walk at random and clear a mask around each place; returns the floor's indices in ascending order."""
    cleared = _cleared(rows, cols)
    directions = tuple(DIRECTIONS.values())
    floor: set[int] = set()
    step = _choose(directions, rng)
    row, col = _choose(range(1, rows), rng), _choose(range(1, cols), rng)
    for _ in range(int(1.7 * (rows + cols))):
        if rng.random() < _TURN_CHANCE:
            step = _choose(directions, rng)
        row = max(min(row + step[0], rows - 2), 1)
        col = max(min(col + step[1], cols - 2), 1)
        floor.update(_choose(cleared[row][col], rng))
    return sorted(floor)


@lru_cache(maxsize=8)
def _cleared(rows: int, cols: int) -> list[list[list[list[int]]]]:
    """Return, by row, column and mask, the cells that are cleared there; the border stays."""
    inner_rows, inner_cols = range(1, rows - 1), range(1, cols - 1)

    def cells(row: int, col: int, mask: tuple[tuple[int, int], ...]) -> list[int]:
        places = [(row + down, col + right) for down, right in mask]
        return [r * (cols + 1) + c for r, c in places if r in inner_rows and c in inner_cols]

    return [[[cells(row, col, mask) for mask in _MASKS] for col in range(cols)] for row in range(rows)]


def play_backwards(room: str) -> str | None:
    """Search a solved board depth-first, through pulls and walks, for the state with the best score.

    The score is the number of pulls on the path times the sum of the boxes' Manhattan distances from the targets
    they started on, and 0 while a target is covered. (gym-sokoban's comments speak of changes from one box to
    another; its code counts every pull.) A box that came back is told from one that was never pulled, as there.

    Args:
        room: A board with every box on a target.

    Returns:
        The first board with the highest score, None if none scores above 0.
    """
    targets = tuple(i for i, cell in enumerate(room) if cell == BOX_ON_TARGET)
    walls = [cell in (WALL, "\n") for cell in room]
    offsets = tuple(offsets_of(room).values())
    away = _manhattan(len(room), room.index("\n") + 1)
    covered = sum(1 << target for target in targets)
    best: _Node | None = None
    best_score = 0
    explored: set[tuple[int, int, int]] = set()
    stack: list[_Node] = [(room.index(PLAYER), targets, covered, 0, 0, _DEPTH)]
    while stack and len(explored) < _EXPLORED:
        node = player, boxes, taken, moved, pulls, depth = stack.pop()
        key = (player, taken, moved)
        if key in explored:
            continue
        explored.add(key)
        if pulls and not (taken | 1 << player) & covered:
            score = pulls * sum(away[target][box] for target, box in zip(targets, boxes, strict=True))
            if score > best_score:
                best, best_score = node, score
        if depth == 1:
            continue
        # gym-sokoban tries the four pulls, each a plain walk where there is nothing to pull, then the four walks.
        first, second = [], []
        for offset in offsets:
            ahead, behind = player + offset, player - offset
            if walls[ahead] or taken >> ahead & 1:
                continue
            walk = (ahead, boxes, taken, moved, pulls, depth - 1)
            if taken >> behind & 1:
                which = boxes.index(behind)
                after = (*boxes[:which], player, *boxes[which + 1 :])
                bits = taken ^ (1 << behind | 1 << player)
                first.append((ahead, after, bits, moved | 1 << which, pulls + 1, depth - 1))
                second.append(walk)
            else:
                first.append(walk)
        stack += reversed(first + second)
    return None if best is None else _draw(room, best[0], best[1])


def walk(board: str, steps: int, rng: random.Random) -> str:
    """Move the player at random, pushing nothing; a step that is blocked is lost.

    Args:
        board: The level, the player not on a target.
        steps: Steps to try.
        rng: Source of randomness.

    Returns:
        The level with the player elsewhere.
    """
    cells = list(board)
    player = board.index(PLAYER)
    offsets = tuple(offsets_of(board).values())
    for _ in range(steps):
        ahead = player + _choose(offsets, rng)
        if cells[ahead] in (FLOOR, TARGET):
            player, _ = move(cells, player, ahead - player)
    return "".join(cells)


def _draw(room: str, player: int, boxes: tuple[int, ...]) -> str:
    cells = list(static_part(room))
    cells[player] = PLAYER
    for box in boxes:
        cells[box] = BOX
    return "".join(cells)


@lru_cache(maxsize=8)
def _manhattan(length: int, stride: int) -> list[list[int]]:
    """Return the distances between all cells of a board text."""
    places = [divmod(cell, stride) for cell in range(length)]
    return [[abs(r - row) + abs(c - col) for row, col in places] for r, c in places]
