"""Plans with the fewest moves: A* over player and boxes, pruned by the cells from which no target can be reached."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from agentbench_credit.envs.sokoban.board import FLOOR, TARGET, offsets_of, read_board, static_part

_State = tuple[int, int]


@dataclass(frozen=True)
class Solution:
    """What the solver found."""

    status: Literal["solved", "unsolvable", "limit"]
    """``"limit"``: the search was given up before it had an answer."""
    moves: tuple[str, ...]
    """The fewest moves that solve the board, empty unless solved."""
    nodes: int
    """States expanded."""


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
    frontier = [i for i in sorted(free) if static[i] == TARGET]
    distances = dict.fromkeys(frontier, 0)
    offsets = offsets_of(static).values()
    for cell in frontier:
        for offset in offsets:
            origin = cell - offset
            if origin in free and origin - offset in free and origin not in distances:
                distances[origin] = distances[cell] + 1
                frontier.append(origin)
    return distances


@lru_cache(maxsize=32768)
def solve(text: str, node_limit: int = 200_000) -> Solution:
    """Find a plan with the fewest moves from a board's state; ties always fall the same way.

    Args:
        text: The board, at any point of a game.
        node_limit: States to expand before the search is given up.

    Returns:
        The solution.

    Raises:
        EnvironmentContractError: The text is no valid board.
    """
    board = read_board(text)
    static = static_part(text)
    free = {i for i, cell in enumerate(static) if cell in (FLOOR, TARGET)}
    distances = push_distances(static)
    if any(box not in distances for box in board.boxes):
        return Solution("unsolvable", (), 0)
    goal = sum(1 << target for target in board.targets)
    start = (board.player, sum(1 << box for box in board.boxes))
    # Pushing a box one cell lowers the sum of distances by at most one, so this estimate is consistent.
    estimate = sum(distances[box] for box in board.boxes)
    heap = [(estimate, 0, *start)]
    came: dict[_State, tuple[_State, str]] = {}
    cost = {start: 0}
    closed: set[_State] = set()
    while heap:
        total, negative, player, boxes = heapq.heappop(heap)
        state = (player, boxes)
        if state in closed:
            continue
        if boxes == goal:
            return Solution("solved", _plan(state, came), len(closed))
        if len(closed) >= node_limit:
            return Solution("limit", (), len(closed))
        closed.add(state)
        spent = 1 - negative
        for name, offset in board.offsets.items():
            ahead = player + offset
            if ahead not in free:
                continue
            after, estimate = boxes, total + negative
            if boxes >> ahead & 1:
                beyond = ahead + offset
                if beyond not in distances or boxes >> beyond & 1:
                    continue
                after ^= 1 << ahead | 1 << beyond
                estimate += distances[beyond] - distances[ahead]
            following = (ahead, after)
            if spent < cost.get(following, spent + 1):
                cost[following] = spent
                came[following] = (state, name)
                heapq.heappush(heap, (spent + estimate, -spent, ahead, after))
    return Solution("unsolvable", (), len(closed))


def _plan(state: _State, came: dict[_State, tuple[_State, str]]) -> tuple[str, ...]:
    moves = []
    while state in came:
        state, name = came[state]
        moves.append(name)
    return tuple(reversed(moves))
