"""The solver against breadth-first search, known levels, and boards that cannot be solved."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sokoban_reference as reference
from agentbench_credit.envs.sokoban.board import DIRECTIONS, move, read_board
from agentbench_credit.envs.sokoban.generate import generate
from agentbench_credit.envs.sokoban.panels import load_panel
from agentbench_credit.envs.sokoban.solver import push_distances, solve
from agentbench_credit.envs.sokoban.xsb import from_xsb

# Microban 1 and 2 by David W. Skinner; their shortest solutions have been published many times.
MICROBAN_1 = "####\n# .#\n#  ###\n#*@  #\n#  $ #\n#  ###\n####"
MICROBAN_2 = "######\n#    #\n# #@ #\n# $* #\n# .* #\n#    #\n######"


@pytest.mark.parametrize(
    ("xsb", "moves"),
    [
        ("#####\n#@$.#\n#####", 1),
        ("########\n#@ $  .#\n########", 4),
        # Around the box to its far side: up, left, left, down, and two pushes right.
        ("######\n#    #\n# $@.#\n######", 6),
        # Two boxes, two corridors: one push, back through the middle, one push.
        ("#######\n#.$@$.#\n#######", 3),
        (MICROBAN_1, 33),
        (MICROBAN_2, 16),
    ],
)
def test_levels_with_known_shortest_solutions(xsb: str, moves: int) -> None:
    solution = solve(from_xsb(xsb))
    assert solution.status == "solved"
    assert len(solution.moves) == moves


def disturbed(seed: int, size: int, boxes: int) -> str | None:
    """Return a level some random moves after its start, which may have made it unsolvable."""
    rng = random.Random(seed)
    text = generate(size, size, boxes, rng)
    if text is None:
        return None
    cells, board = list(text), read_board(text)
    player = board.player
    for _ in range(rng.randint(0, 12)):
        player, _ = move(cells, player, board.offsets[rng.choice(tuple(DIRECTIONS))])
    return "".join(cells)


@settings(max_examples=150)
@given(seed=st.integers(0, 10**9), boxes=st.integers(1, 2))
def test_plans_solve_and_are_as_short_as_breadth_first_search_finds(seed: int, boxes: int) -> None:
    text = disturbed(seed, 5 + boxes, boxes)
    if text is None:
        return
    solution, shortest = solve(text), reference.fewest_moves(text)
    if shortest is None:
        assert (solution.status, solution.moves) == ("unsolvable", ())
        return
    assert solution.status == "solved"
    assert len(solution.moves) == shortest
    game = reference.game(text)
    for name in solution.moves:
        game = game.move(name)
    assert game.solved


def test_plans_for_two_boxes_are_as_short_as_breadth_first_search_finds() -> None:
    for task in load_panel("8x8-2box", "test").tasks[:60]:
        text = from_xsb(task.data)
        assert len(solve(text).moves) == reference.fewest_moves(text)


def test_a_solved_board_has_an_empty_plan() -> None:
    solution = solve("######\n#P_√_#\n######")
    assert (solution.status, solution.moves) == ("solved", ())


@pytest.mark.parametrize(
    "xsb",
    [
        "######\n#$ @.#\n######",  # in a corner
        "########\n#   $  #\n# @   .#\n########",  # along a wall without a target
        "########\n#@ #$. #\n########",  # out of reach
        "#######\n#.$$ .#\n# @####\n#######",  # the boxes block each other
    ],
)
def test_dead_boards_are_called_unsolvable(xsb: str) -> None:
    text = from_xsb(xsb)
    assert reference.fewest_moves(text) is None
    assert solve(text).status == "unsolvable"


def test_dead_cells_are_those_from_which_no_box_alone_reaches_a_target() -> None:
    static = "#######\n#_____#\n#_____#\n#___O_#\n#######"
    distances = push_distances(static)
    cells = [i for i, cell in enumerate(static) if cell in "_O"]
    for cell in cells:
        shortest = []
        for player in cells:
            if player != cell and cell != 28:
                text = "".join({cell: "X", player: "P"}.get(i, symbol) for i, symbol in enumerate(static))
                if text.count("O") == 1:
                    shortest.append(reference.fewest_moves(text))
        reachable = cell == 28 or any(length is not None for length in shortest)
        assert (cell in distances) == reachable, cell
    assert distances[28] == 0
    assert distances[27] == 1


def test_the_search_gives_up_at_its_limit_and_says_so() -> None:
    solution = solve(from_xsb(MICROBAN_1), node_limit=10)
    assert (solution.status, solution.moves, solution.nodes) == ("limit", (), 10)


def test_the_same_board_always_has_the_same_plan() -> None:
    text = from_xsb(MICROBAN_1)
    assert solve(text).moves == solve.__wrapped__(text).moves
