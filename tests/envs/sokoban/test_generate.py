"""Generation: reproducible, solvable, and the backward search against a recursive one written from its description."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sokoban_reference as reference
from agentbench_credit.envs.sokoban.board import read_board
from agentbench_credit.envs.sokoban.generate import generate, make_room, play_backwards, walk
from agentbench_credit.envs.sokoban.solver import solve
from sokoban_reference import STEPS, Cell


def best_by_recursion(room: str) -> tuple[int, str]:
    """Return the best score over a depth-first backward game, and the board that was first to reach it."""
    start = reference.game(room)
    targets = sorted(start.targets)
    explored: set[tuple[Cell, frozenset[Cell], frozenset[int]]] = set()
    best: list[tuple[int, str]] = [(0, "")]

    def visit(player: Cell, boxes: tuple[Cell, ...], moved: frozenset[int], pulls: int, left: int) -> None:
        if left == 0 or (player, frozenset(boxes), moved) in explored:
            return
        explored.add((player, frozenset(boxes), moved))
        away = sum(abs(a - c) + abs(b - d) for (a, b), (c, d) in zip(targets, boxes, strict=True))
        if not start.targets & {player, *boxes} and pulls * away > best[0][0]:
            state = reference.Game(start.shape, start.walls, start.targets, frozenset(boxes), player)
            best[0] = (pulls * away, state.text())
        for pull, (down, right) in product((True, False), STEPS.values()):
            ahead, behind = (player[0] + down, player[1] + right), (player[0] - down, player[1] - right)
            if ahead in start.walls or ahead in boxes:
                continue
            if pull and behind in boxes:
                box = boxes.index(behind)
                visit(ahead, (*boxes[:box], player, *boxes[box + 1 :]), moved | {box}, pulls + 1, left - 1)
            else:
                visit(ahead, boxes, moved, pulls, left - 1)

    visit(start.player, tuple(targets), frozenset(), 0, 299)
    return best[0]


@settings(max_examples=40)
@given(seed=st.integers(0, 10**9), boxes=st.integers(1, 2))
def test_the_backward_search_finds_the_first_state_with_the_best_score(seed: int, boxes: int) -> None:
    room = make_room(6, 6, boxes, random.Random(seed))
    if room is not None:
        score, first = best_by_recursion(room)
        assert play_backwards(room) == (first if score else None)


# Made by gym-sokoban 0.0.6: a room, and the state its reverse_playing returned for it.
FROM_GYM_SOKOBAN = [
    (
        "######\n#___##\n#___##\n#_√###\n#__P##\n######",
        "######\n#_P_##\n#_X_##\n#_O###\n#___##\n######",
    ),
    (
        "######\n######\n######\n#_####\n#P__√#\n######",
        "######\n######\n######\n#_####\n#PX_O#\n######",
    ),
    (
        "######\n#_#__#\n#_#__#\n#√_P√#\n#____#\n######",
        "######\n#_#__#\n#_#XP#\n#O_XO#\n#____#\n######",
    ),
    (
        "######\n###__#\n#_P__#\n#_√√_#\n#____#\n######",
        "######\n###P_#\n#_XX_#\n#_OO_#\n#____#\n######",
    ),
    (
        "########\n#_###_##\n#___P_##\n#__#__##\n#_##√_√#\n#______#\n#______#\n########",
        "########\n#_###_##\n#_____##\n#__#__##\n#_##O_O#\n#_X_X__#\n#___P__#\n########",
    ),
]


@pytest.mark.parametrize(("room", "level"), FROM_GYM_SOKOBAN)
def test_the_backward_search_agrees_with_gym_sokoban(room: str, level: str) -> None:
    assert play_backwards(room) == level


@given(seed=st.integers(0, 10**9), size=st.integers(5, 8), boxes=st.integers(1, 2))
def test_a_level_is_valid_unsolved_and_solvable(seed: int, size: int, boxes: int) -> None:
    level = generate(size, size, boxes, random.Random(seed))
    if level is None:
        return
    board = read_board(level)
    assert board.shape == (size, size)
    assert len(board.boxes) == boxes
    assert not set(board.boxes) & set(board.targets)
    assert level[board.player] == "P"
    solution = solve(level)
    assert solution.status == "solved"
    assert len(solution.moves) > 0


def test_one_seed_gives_one_level_and_reads_no_global_randomness() -> None:
    before = random.getstate()
    levels = [generate(8, 8, 2, random.Random(seed)) for seed in range(5)]
    assert random.getstate() == before
    assert levels == [generate(8, 8, 2, random.Random(seed)) for seed in range(5)]
    assert len(set(levels)) == 4  # one of the rooms has no level


def test_the_border_stays_wall_and_rooms_are_connected() -> None:
    for seed in range(200):
        room = make_room(7, 9, 1, random.Random(seed))
        if room is None:
            continue
        game = reference.game(room)
        rows, cols = game.shape
        inside = set(product(range(1, rows - 1), range(1, cols - 1)))
        assert set(product(range(rows), range(cols))) - inside <= game.walls
        reached, frontier = {game.player}, [game.player]
        for row, col in frontier:
            for down, right in STEPS.values():
                cell = (row + down, col + right)
                if cell not in game.walls | reached:
                    reached.add(cell)
                    frontier.append(cell)
        assert len(reached) + len(game.walls) == rows * cols


def test_a_room_without_space_gives_nothing() -> None:
    assert make_room(3, 3, 1, random.Random(0)) is None
    assert generate(3, 4, 1, random.Random(0)) is None
    assert play_backwards("#####\n#P√_#\n#####") is None


@given(seed=st.integers(0, 10**9))
def test_a_walk_moves_nothing_but_the_player(seed: int) -> None:
    rng = random.Random(seed)
    level = generate(6, 6, 1, rng)
    if level is None:
        return
    before, after = reference.game(level), reference.game(walk(level, 24, rng))
    assert (after.walls, after.targets, after.boxes) == (before.walls, before.targets, before.boxes)
    assert reference.game(walk(level, 0, rng)) == before


def test_a_walk_goes_everywhere_that_needs_no_push_and_onto_targets() -> None:
    level = "#######\n#P_#X_#\n#_O#__#\n#######"
    ends = {walk(level, 24, random.Random(seed)) for seed in range(100)}
    assert {end.replace("S", "P").index("P") for end in ends} == {9, 10, 17, 18}
    assert "#######\n#__#X_#\n#_S#__#\n#######" in ends
