"""The solver against breadth-first search, known levels, and boards that cannot be solved."""

from __future__ import annotations

import os
import random
import time
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sokoban_reference as reference
from agentbench_credit.envs.sokoban import room as rooms
from agentbench_credit.envs.sokoban import search as searches
from agentbench_credit.envs.sokoban.board import DIRECTIONS, move, read_board
from agentbench_credit.envs.sokoban.generate import generate
from agentbench_credit.envs.sokoban.panels import load_panel
from agentbench_credit.envs.sokoban.room import push_distances, room_of, stuck
from agentbench_credit.envs.sokoban.search import Solution
from agentbench_credit.envs.sokoban.solver import solve, solve_pushes
from agentbench_credit.envs.sokoban.xsb import from_xsb, read_xsb

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


def fewest_pushes(text: str) -> int | None:
    """Return the pushes of the solution with the fewest, by breadth-first search where a walk costs nothing."""
    start = reference.game(text)
    queue, pushes = deque([start]), {start: 0}
    while queue:
        state = queue.popleft()
        if state.solved:
            return pushes[state]
        for name in reference.STEPS:
            after = state.move(name)
            spent = pushes[state] + (after.boxes != state.boxes)
            if spent < pushes.get(after, spent + 1):
                pushes[after] = spent
                (queue.append if after.boxes != state.boxes else queue.appendleft)(after)
    return None


def replayed_pushes(text: str, solution: Solution) -> int:
    """Play a plan, every move of which must move something, to the solved board; returns its pushes."""
    game, pushes = reference.game(text), 0
    for name in solution.moves:
        after = game.move(name)
        assert after != game
        pushes += after.boxes != game.boxes
        game = after
    assert game.solved
    return pushes


@settings(max_examples=60)
@given(seed=st.integers(0, 10**9), boxes=st.integers(1, 3))
def test_the_search_over_pushes_is_as_good_as_breadth_first_search(seed: int, boxes: int) -> None:
    text = disturbed(seed, 6, boxes)
    if text is None:
        return
    pushes, least = solve_pushes(text), fewest_pushes(text)
    assert pushes.status == ("unsolvable" if least is None else "solved")
    if least is not None:
        assert replayed_pushes(text, pushes) == least
    if boxes == 3:
        moves, shortest = solve(text), reference.fewest_moves(text)
        assert len(moves.moves) == (shortest or 0)
        assert (moves.status == "solved") == (shortest is not None)


@pytest.mark.parametrize(
    "xsb",
    [
        "#######\n#.@ $ #\n#.$   #\n##  $ #\n###   #\n###.# #\n#######",
        "#######\n###.###\n##  .##\n##  $##\n## $$ #\n# .@  #\n#######",
    ],
)
def test_boxes_too_many_to_be_matched_with_targets_have_the_best_plans_too(
    xsb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "MATCHED_BOXES", 0)
    monkeypatch.setattr(searches, "room_of", rooms.room_of.__wrapped__)
    text = from_xsb(xsb)
    assert len(solve.__wrapped__(text).moves) == reference.fewest_moves(text)
    assert replayed_pushes(text, solve_pushes.__wrapped__(text)) == fewest_pushes(text)


def test_fewest_moves_and_fewest_pushes_are_different_plans() -> None:
    text = from_xsb("######\n#.@  #\n# $ ##\n#  $ #\n#   .#\n######")
    moves, pushes = solve(text), solve_pushes(text)
    assert (len(moves.moves), replayed_pushes(text, moves)) == (10, 6)
    assert (len(pushes.moves), replayed_pushes(text, pushes)) == (12, 4)


@pytest.mark.parametrize(
    ("xsb", "moves", "pushes"),
    [
        ("######\n##  ##\n##.$@#\n##.$$#\n##  .#\n######", 4, 3),
        ("######\n#  ###\n# .$ #\n# $@ #\n##. *#\n######", 13, 4),
        ("######\n## @ #\n# $. #\n#  $ #\n#  #.#\n######", 16, 5),
    ],
)
def test_equal_boxes_with_the_player_elsewhere_are_another_state(xsb: str, moves: int, pushes: int) -> None:
    text = from_xsb(xsb)
    assert (reference.fewest_moves(text), fewest_pushes(text)) == (moves, pushes)
    assert len(solve(text).moves) == moves
    assert replayed_pushes(text, solve_pushes(text)) == pushes


@pytest.mark.parametrize(
    ("xsb", "held"),
    [
        ("#######\n#@ $$ #\n#   . #\n#  .  #\n#######", 2),  # side by side along a wall
        ("#######\n#@    #\n# $$  #\n# $$..#\n#  .. #\n#######", 4),  # two by two in the open
        ("#######\n#@ $  #\n#     #\n#  .  #\n#######", 1),  # one alone between dead cells
        ("#####\n#@  #\n#   #\n#$. #\n#   #\n#   #\n#####", 1),
        ("#######\n#@ #  #\n# $$  #\n# ..  #\n#     #\n#######", 0),  # the right one is free once the left is gone
    ],
)
def test_boxes_that_hold_each_other_are_stuck(xsb: str, held: int) -> None:
    text = from_xsb(xsb)
    room = room_of("".join({"P": "_", "X": "_"}.get(cell, cell) for cell in text))
    assert stuck(room, sum(1 << box for box in read_board(text).boxes)).bit_count() == held
    if held:
        assert solve_pushes(text) == Solution("unsolvable", (), 0)


def test_two_boxes_that_only_one_target_can_take_are_hopeless_at_once() -> None:
    text = from_xsb("#########\n#@ $ $ .#\n#   .   #\n#########")
    assert reference.fewest_moves(text) is None
    assert solve_pushes(text) == Solution("unsolvable", (), 0)


def test_a_plan_by_pushes_leads_on_from_each_of_its_states() -> None:
    cells = list(from_xsb("########\n#  .   #\n# $$$  #\n# .@.  #\n#   ####\n########"))
    left = solve_pushes("".join(cells)).moves
    while left:
        board = read_board("".join(cells))
        move(cells, board.player, board.offsets[left[0]])
        again = solve_pushes("".join(cells)).moves
        assert again == left[1:]
        left = again


def test_a_hopeless_search_ends_by_states_by_time_and_on_large_boards() -> None:
    crowd = "#" * 22 + "\n" + ("#" + " $ ." * 5 + "#\n") * 12 + "#@" + " " * 19 + "#\n" + "#" * 22
    text = from_xsb(crowd)
    for solver in (solve, solve_pushes):
        solution = solver.__wrapped__(text, node_limit=50)
        assert (solution.status, solution.moves) == ("limit", ())
        assert solution.nodes < 50  # sixty boxes: too many states wait long before that
    # The last box is out of the player's reach, which only all states of the large room would prove.
    hall = "#" * 22 + "\n" + ("#  $ .  $ . " + " " * 9 + "#\n") * 3 + "#@" + " " * 19 + "#\n" + "#" * 22
    text = from_xsb(hall + "\n# $. #" + "#" * 16 + "\n" + "#" * 22)
    began = time.monotonic()
    assert solve_pushes.__wrapped__(text, node_limit=10**9, seconds=0.2).status == "limit"
    assert solve.__wrapped__(text, node_limit=10**9, seconds=0.2).status == "limit"
    assert time.monotonic() - began < 5


@pytest.mark.skipif("AGENTBENCH_DATA" not in os.environ, reason="AGENTBENCH_DATA names no folder of data")
def test_boxoban_levels_are_solved_by_plans_that_hold() -> None:
    levels = read_xsb(Path(os.environ["AGENTBENCH_DATA"]) / "boxoban" / "unfiltered-test-000.txt")
    assert len(levels) == 1000
    for level in levels[::50]:
        solution = solve_pushes(level.board)
        assert solution.status == "solved"
        best = solve(level.board)
        if best.status == "solved":
            assert replayed_pushes(level.board, solution) <= replayed_pushes(level.board, best)
            assert len(best.moves) <= len(solution.moves)
