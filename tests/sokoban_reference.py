"""Sokoban by the book, slow and obvious: sets of coordinates, and breadth-first search over whole games."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
Cell = tuple[int, int]


@dataclass(frozen=True)
class Game:
    """A state: everything by row and column."""

    shape: Cell
    walls: frozenset[Cell]
    targets: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell

    @property
    def on_target(self) -> int:
        return len(self.boxes & self.targets)

    @property
    def solved(self) -> bool:
        return self.boxes == self.targets

    def move(self, name: str) -> Game:
        down, right = STEPS[name]
        ahead = (self.player[0] + down, self.player[1] + right)
        beyond = (ahead[0] + down, ahead[1] + right)
        if ahead in self.walls:
            return self
        if ahead not in self.boxes:
            return Game(self.shape, self.walls, self.targets, self.boxes, ahead)
        if beyond in self.walls or beyond in self.boxes:
            return self
        return Game(self.shape, self.walls, self.targets, self.boxes - {ahead} | {beyond}, ahead)

    def text(self) -> str:
        def symbol(cell: Cell) -> str:
            if cell in self.walls:
                return "#"
            if cell in self.boxes:
                return "√" if cell in self.targets else "X"
            if cell == self.player:
                return "S" if cell in self.targets else "P"
            return "O" if cell in self.targets else "_"

        rows, cols = self.shape
        return "\n".join("".join(symbol((row, col)) for col in range(cols)) for row in range(rows))


def game(text: str) -> Game:
    """Read a board."""
    rows = text.split("\n")
    cells = {(row, col): symbol for row, line in enumerate(rows) for col, symbol in enumerate(line)}

    def where(symbols: str) -> frozenset[Cell]:
        return frozenset(cell for cell, symbol in cells.items() if symbol in symbols)

    (player,) = where("PS")
    return Game((len(rows), len(rows[0])), where("#"), where("O√S"), where("X√"), player)


def fewest_moves(text: str) -> int | None:
    """Return the length of the shortest solution, None if there is none."""
    start = game(text)
    distance = {start: 0}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state.solved:
            return distance[state]
        for name in STEPS:
            after = state.move(name)
            if after not in distance:
                distance[after] = distance[state] + 1
                queue.append(after)
    return None
