"""A* over pushes for levels with many boxes: plans with the fewest moves, or with the fewest pushes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from agentbench_credit.envs.sokoban.board import DIRECTIONS, Board, static_part
from agentbench_credit.envs.sokoban.room import Room, pushes_left, room_of, walk_layers

QUEUED_PER_STATE = 10
"""Waiting states for each state of the limit; with more the search is given up, which bounds its memory."""

Measure = Literal["moves", "pushes"]

_Node = tuple[int, int, int, "_Node | None"]
"""Mask of the boxes, mask of the player's cell, what was spent, and the node before the last push."""


@dataclass(frozen=True)
class Solution:
    """What the solver found."""

    status: Literal["solved", "unsolvable", "limit"]
    """``"limit"``: the search was given up before it had an answer."""
    moves: tuple[str, ...]
    """A plan that solves the board, the best by the solver's measure; empty unless solved."""
    nodes: int
    """States expanded."""


class _Queue:
    """Nodes by estimated total; of equal ones the last comes first."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[_Node]] = {}
        self.size = 0
        self.least = 0

    def push(self, total: int, node: _Node) -> None:
        self.size += 1
        bucket = self.waiting.get(total)
        if bucket is None:
            self.waiting[total] = [node]
        else:
            bucket.append(node)

    def pop(self) -> _Node | None:
        bucket = self.waiting.get(self.least)
        if not bucket:
            self.waiting.pop(self.least, None)
            if not self.waiting:
                return None
            self.least = min(self.waiting)
            bucket = self.waiting[self.least]
        self.size -= 1
        return bucket.pop()


def search(board: Board, measure: Measure, node_limit: int, seconds: float) -> Solution:
    """Find the best plan; ties always fall the same way.

    A state is the boxes with, for moves, the player's cell or, for pushes, all the cells that the player can walk to.
    The estimate is `pushes_left`, which never falls by more than a step costs, so the first visit of a state is the
    cheapest.

    Args:
        board: The board.
        measure: What a plan should have the fewest of.
        node_limit: States to expand before the search is given up.
        seconds: Time after which the search is given up.

    Returns:
        The solution.
    """
    deadline = time.monotonic() + seconds
    room = room_of(static_part(board.text))
    boxes = sum(1 << box for box in board.boxes)
    bounds = {boxes: pushes_left(room, boxes)}
    visited: dict[int, int] = {}
    queue, nodes = _Queue(), 0
    if (least := bounds[boxes]) is not None:
        queue.push(least, (boxes, 1 << board.player, 0, None))
    while (node := queue.pop()) is not None:
        boxes, player, spent, _ = node
        if visited.get(boxes, 0) & player:
            continue
        if boxes == room.goal:
            return Solution("solved", _plan(room, node), nodes)
        over_time = nodes % 64 == 63 and time.monotonic() > deadline
        if nodes >= node_limit or queue.size > QUEUED_PER_STATE * node_limit or over_time:
            return Solution("limit", (), nodes)
        nodes += 1
        layers = walk_layers(room, player, boxes)
        if measure == "pushes":
            layers = [sum(layers)]
        visited[boxes] = visited.get(boxes, 0) | layers[0]
        for after, vacated, cost in _pushes(room, boxes, layers):
            if after not in bounds:
                bounds[after] = pushes_left(room, after)
            left = bounds[after]
            if left is not None and not visited.get(after, 0) & vacated:
                queue.push(spent + cost + left, (after, vacated, spent + cost, node))
    return Solution("unsolvable", (), nodes)


def _pushes(room: Room, boxes: int, layers: list[int]) -> list[tuple[int, int, int]]:
    """Return every push onto a cell that is alive: the boxes after it, the cell that the box left, steps with it."""
    empty = room.floor & ~boxes
    spots, every = [], 0
    for offset in room.offsets:
        where = _shift(boxes, -offset) & empty & _shift(room.alive & ~boxes, -2 * offset)
        if where:
            spots.append((offset, where))
            every |= where
    found = []
    for steps, layer in enumerate(layers, 1):
        if not layer & every:
            continue
        for offset, where in spots:
            here = layer & where
            while here:
                spot = here & -here
                here ^= spot
                box = _shift(spot, offset)
                found.append((boxes ^ box ^ _shift(box, offset), box, steps))
    return found


def _shift(mask: int, offset: int) -> int:
    return mask << offset if offset > 0 else mask >> -offset


def _plan(room: Room, node: _Node | None) -> tuple[str, ...]:
    """Return the moves to a node: before each push the shortest walk to where the player has to stand."""
    names = dict(zip(room.offsets, DIRECTIONS, strict=True))
    chain: list[_Node] = []
    while node is not None:
        chain.append(node)
        node = node[3]
    chain.reverse()
    moves: list[str] = []
    for before, after in pairwise(chain):
        vacated = after[1]
        pushed = after[0] & ~before[0]
        offset = pushed.bit_length() - vacated.bit_length()
        steps = _walk(room, before[1], _shift(vacated, -offset), before[0])
        moves += [names[step] for step in (*steps, offset)]
    return tuple(moves)


def _walk(room: Room, start: int, end: int, boxes: int) -> list[int]:
    """Return the offsets of a shortest walk."""
    layers = walk_layers(room, start, boxes)
    steps: list[int] = []
    for number in range(next(i for i, layer in enumerate(layers) if layer & end), 0, -1):
        offset = next(offset for offset in room.offsets if _shift(end, -offset) & layers[number - 1])
        steps.append(offset)
        end = _shift(end, -offset)
    return steps[::-1]
