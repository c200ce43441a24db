"""Boards as text: symbols, moves, validity and symmetry.

A board is one string, rows joined by newlines, so a cell is an index into it and a step up or down is one row's
width plus one. The codes of a cell, 0 to 6, are the positions of its symbol in `SYMBOLS`: wall, floor, target,
box on target, box, player, player on target.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from agentbench_credit.errors import EnvironmentContractError

SYMBOLS = "#_O√XPS"
WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = tuple(SYMBOLS)
DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""The four moves as steps in rows and columns."""
MAX_CELLS = 10_000
"""Largest board that is read; keeps a hostile file from filling the memory."""

_WITHOUT_MOVABLES = str.maketrans({PLAYER: FLOOR, BOX: FLOOR, PLAYER_ON_TARGET: TARGET, BOX_ON_TARGET: TARGET})


class Board(NamedTuple):
    """What is worth knowing about a board text."""

    text: str
    """The board itself."""
    player: int
    """Index of the player."""
    boxes: tuple[int, ...]
    """Indices of the boxes in ascending order."""
    targets: tuple[int, ...]
    """Indices of the targets in ascending order."""
    offsets: dict[str, int]
    """What each move adds to an index."""
    shape: tuple[int, int]
    """Rows and columns."""


def offsets_of(text: str) -> dict[str, int]:
    """Return what each move adds to an index of a board text."""
    stride = text.index("\n") + 1
    return {name: row * stride + col for name, (row, col) in DIRECTIONS.items()}


def static_part(text: str) -> str:
    """Return the board without player and boxes."""
    return text.translate(_WITHOUT_MOVABLES)


@lru_cache(maxsize=4096)
def read_board(text: str) -> Board:
    """Check a board text and find its pieces.

    Args:
        text: Rows of `SYMBOLS` joined by newlines.

    Returns:
        The board.

    Raises:
        EnvironmentContractError: Unknown symbols, ragged rows, not exactly one player, no boxes, boxes and targets
            of different number, too many cells, or the player could walk off the board.
    """
    rows = text.split("\n")
    problem = _problem(text, rows)
    if problem:
        raise EnvironmentContractError(problem, mend=f"a board is a rectangle of {SYMBOLS}")
    players, boxes, targets = (
        tuple(i for i, cell in enumerate(text) if cell in kind)
        for kind in (PLAYER + PLAYER_ON_TARGET, BOX + BOX_ON_TARGET, TARGET + BOX_ON_TARGET + PLAYER_ON_TARGET)
    )
    if len(players) != 1:
        what = f"{len(players)} players" if players else "no player"
        raise EnvironmentContractError(what, mend="a level has exactly one player")
    if not boxes or len(boxes) != len(targets):
        what = f"{len(boxes)} boxes for {len(targets)} targets"
        raise EnvironmentContractError(what, mend="a level has as many boxes as targets, and at least one")
    board = Board(text, players[0], boxes, targets, offsets_of(text), (len(rows), len(rows[0])))
    if _leaks(board):
        raise EnvironmentContractError("the walls do not close", mend="the player could leave the board")
    return board


def _problem(text: str, rows: list[str]) -> str:
    if len(text) > MAX_CELLS:
        return f"the board has more than {MAX_CELLS} cells"
    if len(rows) < 2 or len({len(row) for row in rows}) != 1:
        return "the rows are not equally long" if len(rows) > 1 else "the board has a single row"
    unknown = sorted(set(text) - set(SYMBOLS) - {"\n"})
    return f"unknown symbol {unknown[0]!r}" if unknown else ""


def _leaks(board: Board) -> bool:
    """Tell whether the player, with all boxes gone, could reach the border."""
    cols = board.shape[1]
    reached, frontier = {board.player}, [board.player]
    for cell in frontier:
        if cell < cols or cell >= len(board.text) - cols or cell % (cols + 1) in (0, cols - 1):
            return True
        for offset in board.offsets.values():
            ahead = cell + offset
            if ahead not in reached and board.text[ahead] != WALL:
                reached.add(ahead)
                frontier.append(ahead)
    return False


def move(cells: list[str], player: int, offset: int) -> tuple[int, int]:
    """Move the player one cell, pushing a box if one is in the way; a blocked move changes nothing.

    Args:
        cells: The board's characters, changed in place.
        player: Index of the player.
        offset: What the move adds to an index.

    Returns:
        The player's index afterwards, and by how much the number of boxes on targets changed (-1, 0 or 1).
    """
    ahead = player + offset
    there, change = cells[ahead], 0
    if there in (BOX, BOX_ON_TARGET):
        beyond = cells[ahead + offset]
        if beyond not in (FLOOR, TARGET):
            return player, 0
        cells[ahead + offset] = BOX if beyond == FLOOR else BOX_ON_TARGET
        change = (beyond == TARGET) - (there == BOX_ON_TARGET)
        there = FLOOR if there == BOX else TARGET
    elif there not in (FLOOR, TARGET):
        return player, 0
    cells[ahead] = PLAYER if there == FLOOR else PLAYER_ON_TARGET
    cells[player] = FLOOR if cells[player] == PLAYER else TARGET
    return ahead, change


def canonical(text: str) -> str:
    """Return the smallest of a board's eight rotations and mirror images: equal for levels that are the same."""
    rows = text.split("\n")
    images = []
    for _ in range(4):
        rows = ["".join(col) for col in zip(*reversed(rows), strict=True)]
        images += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return min(images)
