"""Boards as pictures: one 16x16 tile for each of the seven kinds of cell, drawn by code."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from agentbench_credit.envs.sokoban.board import SYMBOLS

TILE = 16
"""Height and width of a tile in pixels."""

Image = NDArray[np.uint8]

_Color = tuple[int, int, int]

_CODES = str.maketrans({symbol: chr(code) for code, symbol in enumerate(SYMBOLS)})

_MORTAR, _BRICK, _BRICK_LIGHT, _BRICK_DARK = (58, 50, 54), (142, 84, 74), (172, 108, 92), (108, 62, 58)
_SAND, _SAND_LIGHT, _SAND_DARK = (226, 214, 184), (236, 226, 200), (206, 192, 158)
_RED, _RED_LIGHT = (206, 52, 60), (244, 128, 120)
_WOOD: tuple[_Color, ...] = ((196, 136, 62), (228, 172, 96), (146, 94, 38), (92, 56, 22))
_GREEN: tuple[_Color, ...] = ((84, 172, 84), (138, 212, 124), (48, 122, 62), (24, 72, 40))
"""Face, light edge, dark edge and frame of a box."""
_WHITE: _Color = (255, 255, 255)
_SKIN, _HAIR, _COAT, _COAT_DARK, _BOOTS = (240, 196, 156), (74, 46, 30), (48, 98, 190), (30, 66, 138), (44, 40, 60)


def draw_board(text: str) -> Image:
    """Draw a board.

    Args:
        text: The board, rows of `SYMBOLS` joined by newlines.

    Returns:
        The picture, uint8, shape (16·rows, 16·columns, 3), red, green and blue; an array of its own.
    """
    cols = text.index("\n")
    codes = np.frombuffer(text.translate(_CODES).replace("\n", "").encode("latin-1"), np.uint8).reshape(-1, cols)
    # Row r of all tiles of a row of the board stands side by side: (rows, cols, 16, 48) -> (rows, 16, cols, 48).
    strips = tiles()[codes].swapaxes(1, 2)
    return strips.reshape(TILE * len(codes), TILE * cols, 3)


@cache
def tiles() -> Image:
    """Return the tiles.

    Returns:
        uint8, shape (7, 16, 48): by code (see `SYMBOLS`), row, and column and color in one; read-only.
    """
    made = (_wall(), _floor(), _target(), _ticked(_box(*_GREEN)), _box(*_WOOD), _player(_floor()), _player(_target()))
    stack = np.stack(made).reshape(len(SYMBOLS), TILE, 3 * TILE)
    stack.flags.writeable = False
    return stack


def _fill(tile: Image, rows: tuple[int, int], cols: tuple[int, int], color: _Color) -> None:
    """Paint a rectangle; both ranges hold their last row or column."""
    tile[rows[0] : rows[1] + 1, cols[0] : cols[1] + 1] = color


def _wall() -> Image:
    tile: Image = np.full((TILE, TILE, 3), _MORTAR, np.uint8)
    for course in range(4):
        top, shift = 4 * course, 4 * (course % 2)
        for left in (shift - 8, shift, shift + 8):
            first, last = max(left, 0), min(left + 6, TILE - 1)
            if first <= last:
                _fill(tile, (top, top + 2), (first, last), _BRICK)
                _fill(tile, (top, top), (first, last), _BRICK_LIGHT)
                _fill(tile, (top + 2, top + 2), (first, last), _BRICK_DARK)
    return tile


def _floor() -> Image:
    tile: Image = np.full((TILE, TILE, 3), _SAND, np.uint8)
    _fill(tile, (15, 15), (0, 15), _SAND_DARK)
    _fill(tile, (0, 15), (15, 15), _SAND_DARK)
    _fill(tile, (0, 0), (0, 14), _SAND_LIGHT)
    _fill(tile, (0, 14), (0, 0), _SAND_LIGHT)
    return tile


def _disc(tile: Image, radius: float, color: _Color, center: tuple[float, float] = (7.5, 7.5)) -> None:
    rows, cols = np.ogrid[:TILE, :TILE]
    tile[(rows - center[0]) ** 2 + (cols - center[1]) ** 2 <= radius**2] = color


def _target() -> Image:
    """Return a floor with a ring and a dot, which a player standing on it leaves in sight."""
    tile = _floor()
    _disc(tile, 6.6, _RED)
    _disc(tile, 4.6, _SAND)
    _disc(tile, 2.3, _RED)
    _fill(tile, (6, 6), (6, 7), _RED_LIGHT)
    return tile


def _box(face: _Color, light: _Color, dark: _Color, frame: _Color) -> Image:
    """Return a crate: frame, edges, planks and a cross brace."""
    tile = _floor()
    _fill(tile, (1, 14), (1, 14), frame)
    _fill(tile, (2, 13), (2, 13), face)
    _fill(tile, (2, 3), (2, 13), light)
    _fill(tile, (2, 13), (2, 3), light)
    _fill(tile, (12, 13), (3, 13), dark)
    _fill(tile, (3, 13), (12, 13), dark)
    _fill(tile, (4, 11), (4, 11), frame)
    _fill(tile, (5, 10), (5, 10), face)
    for step in range(6):
        tile[5 + step, 5 + step] = tile[5 + step, 10 - step] = light
    return tile


def _ticked(tile: Image) -> Image:
    """Return a box with a white tick."""
    for row, col in ((7, 4), (8, 5), (9, 6), (10, 7), (9, 8), (8, 9), (7, 10), (6, 11)):
        _fill(tile, (row - 1, row), (col, col), _WHITE)
        tile[row + 1, col] = _GREEN[3]
    return tile


def _player(ground: Image) -> Image:
    """Return a worker in a blue coat on a floor or a target."""
    tile = ground
    _disc(tile, 3.0, _HAIR, (4.0, 7.5))
    _fill(tile, (4, 6), (6, 9), _SKIN)
    tile[5, 6] = tile[5, 9] = _HAIR
    _fill(tile, (7, 11), (5, 10), _COAT)
    _fill(tile, (8, 10), (4, 4), _COAT_DARK)
    _fill(tile, (8, 10), (11, 11), _COAT_DARK)
    _fill(tile, (11, 11), (4, 4), _SKIN)
    _fill(tile, (11, 11), (11, 11), _SKIN)
    _fill(tile, (7, 11), (7, 8), _COAT_DARK)
    _fill(tile, (12, 13), (5, 6), _BOOTS)
    _fill(tile, (12, 13), (9, 10), _BOOTS)
    return tile
