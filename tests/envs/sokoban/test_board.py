"""Boards: what is accepted, how pieces move, which levels are the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sokoban_reference as reference
from agentbench_credit.envs.sokoban import board as boards
from agentbench_credit.envs.sokoban.generate import generate
from agentbench_credit.errors import EnvironmentContractError

ROOM = "#######\n#P_X_O#\n#__#__#\n#_OX__#\n#######"


def test_reading_finds_every_piece() -> None:
    board = boards.read_board("######\n#S√X_#\n#_X#O#\n######")
    assert board.shape == (4, 6)
    assert board.player == 8
    assert board.boxes == (9, 10, 16)
    assert board.targets == (8, 9, 18)
    assert board.offsets == {"up": -7, "down": 7, "left": -1, "right": 1}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("####\n#P?#\n####", "unknown symbol '?'"),
        ("#####\n#PXO#\n####", "not equally long"),
        ("#PXO#", "single row"),
        ("", "single row"),
        ("####\n#XO#\n####", "no player"),
        ("######\n#PPXO#\n######", "2 players"),
        ("######\n#PSX_#\n######", "2 players"),
        ("####\n#P_#\n####", "0 boxes for 0 targets"),
        ("######\n#PXXO#\n######", "2 boxes for 1 targets"),
        ("#####\n#PXO_\n#####", "walls do not close"),
        ("#####\n_PXO#\n#####", "walls do not close"),
        ("##_##\n#PXO#\n##_##", "walls do not close"),
        ("##X##\n#_P_#\n##O##", "walls do not close"),
        ("\n".join(["#" * 200] * 200), "more than 10000 cells"),
    ],
)
def test_a_text_that_is_no_level_is_refused(text: str, what: str) -> None:
    with pytest.raises(EnvironmentContractError, match=what.replace("?", r"\?")):
        boards.read_board(text)


@given(seed=st.integers(0, 10**9))
def test_moves_agree_with_the_rules_by_coordinates(seed: int) -> None:
    rng = random.Random(seed)
    text = generate(6, 7, rng.choice((1, 2, 3)), rng) or ROOM
    board, game = boards.read_board(text), reference.game(text)
    cells, player = list(text), board.player
    for _ in range(60):
        name = rng.choice(tuple(boards.DIRECTIONS))
        after = game.move(name)
        player, change = boards.move(cells, player, board.offsets[name])
        assert "".join(cells) == after.text()
        assert change == after.on_target - game.on_target
        assert cells[player] in "PS"
        game = after


def test_a_box_pushed_from_target_to_target_changes_no_count() -> None:
    text = "#######\n#P√O_X#\n#######"
    cells = list(text)
    assert boards.move(cells, 9, 1) == (10, 0)
    assert "".join(cells) == "#######\n#_S√_X#\n#######"


@pytest.mark.parametrize(
    "text", ["#####\n#PXX#\n#O_O#\n#####", "#####\n#PX##\n#O__#\n#####", "#####\n#P√√#\n#___#\n#####"]
)
def test_blocked_pushes_change_nothing(text: str) -> None:
    cells = list(text)
    assert boards.move(cells, 7, 1) == (7, 0)
    assert "".join(cells) == text


def test_all_eight_images_of_a_level_are_one_family_and_other_levels_are_not() -> None:
    grid = [list(row) for row in ROOM.split("\n")]
    images = set()
    for _ in range(4):
        grid = [list(row) for row in zip(*grid[::-1], strict=True)]
        images |= {"\n".join(map("".join, grid)), "\n".join("".join(row[::-1]) for row in grid)}
    assert len(images) == 8
    assert {boards.canonical(image) for image in images} == {min(images)}
    assert boards.canonical(ROOM.replace("P_X", "_PX")) != min(images)
