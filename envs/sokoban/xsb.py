"""XSB, the usual text format of Sokoban levels: single levels and files with many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from agentbench_credit.envs.sokoban.board import FLOOR, MAX_CELLS, SYMBOLS, read_board
from agentbench_credit.errors import EnvironmentContractError

XSB = "# .*$@+"
"""XSB's symbols in the order of `SYMBOLS`; ``-`` and ``_`` also stand for floor."""

_TO_TEXT = {**dict(zip(XSB, SYMBOLS, strict=True)), "-": FLOOR, "_": FLOOR}
_TO_XSB = str.maketrans(dict(zip(SYMBOLS, XSB, strict=True)))
_RUN = re.compile(r"([0-9]+)(.)")
_PACKED = re.compile(r"(?:[0-9]*[-_#.*$@+]|\|)+")
_WORD = re.compile(r"[^\W\d_]{2}")


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
        _check_row(row, f"{where} line {number}")
    board = "\n".join("".join(map(_TO_TEXT.__getitem__, row.ljust(width))) for row in rows)
    try:
        read_board(board)
    except EnvironmentContractError as error:
        raise EnvironmentContractError(error.what, where=f"{where} line {line}", mend=error.mend) from None
    return board


def _check_row(row: str, where: str) -> None:
    for char in row:
        if char not in _TO_TEXT:
            mend = f"a row holds only {XSB!r}, '-' and '_', or all of it run-length coded; a title starts with ';'"
            raise EnvironmentContractError(f"{char!r} is not an XSB character", where=where, mend=mend)


def pack(xsb: str) -> str:
    """Return an XSB level in one line: runs as a number and a character, ``-`` for floor, ``|`` between rows."""
    row = xsb.replace(" ", "-").replace("\n", "|")
    return re.sub(r"([^|])\1+", lambda run: f"{len(run[0])}{run[1]}", row)


def unpack(packed: str, where: str = "level") -> str:
    """Return the XSB rows of a run-length coded line, joined by newlines.

    Args:
        packed: What `pack` returned, or the like from elsewhere.
        where: File and line, named in errors.

    Returns:
        The rows, with blanks for floor.

    Raises:
        EnvironmentContractError: The rows would have more cells than a board may have.
    """
    if sum(int(run[0][:9]) if len(run[0]) < 9 else MAX_CELLS + 1 for run in _RUN.findall(packed)) > MAX_CELLS:
        raise EnvironmentContractError(f"the level has more than {MAX_CELLS} cells", where=where)
    rows = _RUN.sub(lambda run: run[2] * int(run[1]), packed)
    return rows.replace("-", " ").replace("_", " ").replace("|", "\n").strip("\n")


def read_xsb(path: Path) -> list[Level]:
    """Read every level of an XSB file.

    A row is a line with a wall in which more than half of the characters are XSB's and no two letters meet; all other
    lines (titles, authors, blank lines, and what stands between ``Comment:`` and ``Comment-End:``) separate levels.
    Rows may be run-length coded (``5#``, ``2#@$.#``), several in one line with ``|`` between them.

    Args:
        path: The file; UTF-8, or UTF-16 with its mark; other bytes may stand outside of rows. Lines end as on
            Linux, Windows or old Macs.

    Returns:
        The levels in the order of the file.

    Raises:
        EnvironmentContractError: The file cannot be read, holds no level, a level is not valid, or a comment is not
            closed.
    """
    levels: list[Level] = []
    rows: list[str] = []
    first = comment = 0
    for number, line in enumerate([*_lines(path), ""], 1):
        word = line.strip().lower()
        if comment:
            comment = 0 if word in ("comment-end:", "comment_end:") else comment
        elif _is_row(line):
            first = first if rows else number
            rows += _rows(line, f"{path} line {number}")
        else:
            comment = number if word == "comment:" else 0
            if rows:
                levels.append(Level(from_xsb("\n".join(rows), str(path), first), first))
                rows = []
    if comment:
        mend = "end it with a line 'Comment-End:'"
        raise EnvironmentContractError("the comment has no end", where=f"{path} line {comment}", mend=mend)
    if not levels:
        raise EnvironmentContractError("no level in the file", where=str(path), mend="rows are lines of XSB symbols")
    return levels


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EnvironmentContractError(f"cannot read the level file ({error.strerror})", where=str(path)) from error
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return re.split("\r\n|\r|\n", data.decode(encoding, errors="replace"))


def _is_row(line: str) -> bool:
    known = sum(char in _TO_TEXT or char == "|" for char in line)
    if "#" not in line or line.lstrip().startswith(";") or _WORD.search(line):
        return False
    return 2 * known > len(line) or _is_packed(line.rstrip())


def _is_packed(line: str) -> bool:
    return bool(_PACKED.fullmatch(line)) and any(char.isdigit() or char == "|" for char in line)


def _rows(line: str, where: str) -> list[str]:
    """Return the rows of a line, which is checked."""
    row = line.rstrip()
    if _is_packed(row):
        return unpack(row, where).split("\n")
    _check_row(re.sub("[0-9|]", "", row), where)  # first what belongs to neither form
    _check_row(row, where)
    return [row]
