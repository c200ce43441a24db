"""XSB, the usual text format of Sokoban levels: single levels and files with many."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from agentbench_credit.envs.sokoban.board import FLOOR, MAX_CELLS, SYMBOLS, read_board
from agentbench_credit.errors import EnvironmentContractError

XSB = "# .*$@+"
"""XSB's symbols in the order of `SYMBOLS`; ``-`` and ``_`` also stand for floor."""

_TO_TEXT = {**dict(zip(XSB, SYMBOLS, strict=True)), "-": FLOOR, "_": FLOOR}
_TO_XSB = str.maketrans(dict(zip(SYMBOLS, XSB, strict=True)))


class Level(NamedTuple):
    """A level of an XSB file."""

    board: str
    """The board as text."""
    line: int
    """Line of its first row, counted from 1."""


def to_xsb(board: str) -> str:
    """Return a board text in XSB, without the floor at the end of rows."""
    return "\n".join(row.rstrip() for row in board.translate(_TO_XSB).split("\n"))


def from_xsb(xsb: str, where: str = "level", line: int = 1) -> str:
    """Return the board text of one XSB level.

    Args:
        xsb: The rows, joined by newlines; short rows are filled up with floor.
        where: File or place, named in errors.
        line: Number of the first row in that place.

    Returns:
        The board as text.

    Raises:
        EnvironmentContractError: A bad character, or no valid level (see `read_board`).
    """
    rows = xsb.split("\n")
    width = max(map(len, rows))
    if width * len(rows) > MAX_CELLS:
        raise EnvironmentContractError(f"the level has more than {MAX_CELLS} cells", where=f"{where} line {line}")
    for number, row in enumerate(rows, line):
        for char in row:
            if char not in _TO_TEXT:
                what = f"{char!r} is not an XSB character"
                mend = f"a row holds only {XSB!r}, '-' and '_'; a title starts with ';'"
                raise EnvironmentContractError(what, where=f"{where} line {number}", mend=mend)
    board = "\n".join("".join(map(_TO_TEXT.__getitem__, row.ljust(width))) for row in rows)
    try:
        read_board(board)
    except EnvironmentContractError as error:
        raise EnvironmentContractError(error.what, where=f"{where} line {line}", mend=error.mend) from None
    return board


def read_xsb(path: Path) -> list[Level]:
    """Read every level of an XSB file.

    A row is a line with a wall in which more than half of the characters are XSB's; all other lines (titles,
    comments, authors, blank lines) separate levels.

    Args:
        path: The file; UTF-8, other bytes may stand outside of rows.

    Returns:
        The levels in the order of the file.

    Raises:
        EnvironmentContractError: The file cannot be read, holds no level, or a level is not valid.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig", errors="replace").splitlines()
    except OSError as error:
        raise EnvironmentContractError(f"cannot read the level file ({error.strerror})", where=str(path)) from error
    levels: list[Level] = []
    rows: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        if _is_row(line):
            rows.append(line.rstrip())
        elif rows:
            first = number - len(rows)
            levels.append(Level(from_xsb("\n".join(rows), str(path), first), first))
            rows = []
    if not levels:
        raise EnvironmentContractError("no level in the file", where=str(path), mend="rows are lines of XSB symbols")
    return levels


def _is_row(line: str) -> bool:
    known = sum(char in _TO_TEXT for char in line)
    return "#" in line and not line.startswith(";") and 2 * known > len(line)
