"""Plans: with the fewest moves, or, for levels that are too hard for that, with the fewest pushes."""

from __future__ import annotations

import heapq
from functools import lru_cache

from agentbench_credit.envs.sokoban.board import FLOOR, TARGET, Board, read_board, static_part
from agentbench_credit.envs.sokoban.room import push_distances
from agentbench_credit.envs.sokoban.search import Solution, search

WALKED_BOXES = 2
"""Most boxes for which `solve` searches step by step, which needs no tables and is the quickest there."""
WALKED_NODES = 200_000
"""States after which a search step by step is given up."""
PUSHED_NODES = 60_000
"""States after which a search over pushes is given up: two or three seconds on boards of 10x10."""
SECONDS = 5.0
"""Time after which a search over pushes is given up; only large boards and slow machines need it."""

_State = tuple[int, int]


@lru_cache(maxsize=32768)
def solve(text: str, node_limit: int | None = None, seconds: float = SECONDS) -> Solution:
    """Find a plan with the fewest moves from a board's state; ties always fall the same way.

    Args:
        text: The board, at any point of a game.
        node_limit: States to expand before the search is given up, None for `WALKED_NODES` with one or two boxes and
            `PUSHED_NODES` with more.
        seconds: Time after which the search is given up; with one or two boxes the states alone count.

    Returns:
        The solution.

    Raises:
        EnvironmentContractError: The text is no valid board.
    """
    board = read_board(text)
    if len(board.boxes) > WALKED_BOXES:
        return search(board, "moves", PUSHED_NODES if node_limit is None else node_limit, seconds)
    return _walk(board, WALKED_NODES if node_limit is None else node_limit)


def _walk(board: Board, node_limit: int) -> Solution:
    """Find a plan with the fewest moves, step by step over player and boxes."""
    text = board.text
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


@lru_cache(maxsize=4096)
def solve_pushes(text: str, node_limit: int = PUSHED_NODES, seconds: float = SECONDS) -> Solution:
    """Find a plan with the fewest pushes, each after the shortest walk to it; ties always fall the same way.

    States that differ only in where the player stands are one, which makes this far quicker than `solve`.

    Args:
        text: The board, at any point of a game.
        node_limit: States to expand before the search is given up.
        seconds: Time after which the search is given up.

    Returns:
        The solution.

    Raises:
        EnvironmentContractError: The text is no valid board.
    """
    return search(read_board(text), "pushes", node_limit, seconds)


def _plan(state: _State, came: dict[_State, tuple[_State, str]]) -> tuple[str, ...]:
    moves = []
    while state in came:
        state, name = came[state]
        moves.append(name)
    return tuple(reversed(moves))
