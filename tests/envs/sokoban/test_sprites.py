"""Pictures: what they show, that no two boards look the same, and that they are quick to draw."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np

from agentbench_credit.envs.sokoban.board import SYMBOLS
from agentbench_credit.envs.sokoban.env import Snapshot, SokobanEnv
from agentbench_credit.envs.sokoban.sprites import TILE, draw_board

BOARD = "######\n#P_X_#\n#_O√_#\n######"


def test_each_cell_stands_at_its_place_and_the_picture_belongs_to_the_caller() -> None:
    picture = draw_board(BOARD)
    assert (picture.shape, picture.dtype) == ((64, 96, 3), np.uint8)
    for row, line in enumerate(BOARD.split("\n")):
        for col, symbol in enumerate(line):
            tile = picture[TILE * row : TILE * (row + 1), TILE * col : TILE * (col + 1)]
            assert np.array_equal(tile, draw_board(f"{symbol}\n{symbol}")[:TILE]), (row, col)
    picture[:] = 0
    assert draw_board(BOARD).any()


def test_the_seven_kinds_of_cell_look_different_also_in_gray_and_at_half_size() -> None:
    tiles = [draw_board(f"{symbol}\n{symbol}")[:TILE].astype(float) for symbol in SYMBOLS]
    for (one, first), (two, second) in combinations(zip(SYMBOLS, tiles, strict=True), 2):
        small = [tile.mean(2).reshape(8, 2, 8, 2).mean((1, 3)) for tile in (first, second)]
        assert np.abs(small[0] - small[1]).max() > 24, (one, two)


def test_the_visual_preset_shows_the_board_in_the_picture_only() -> None:
    env = SokobanEnv("visual", "test")
    observation, info = env.reset(seed=0)
    assert info["image"].shape == (96, 96, 3)
    for action in ("up", "?", "left", "left"):
        board = SokobanEnv.render(env)
        assert isinstance(board, str)
        assert np.array_equal(info["image"], draw_board(board))
        assert not set(board) & set(observation) & set("#_O√XS")
        observation, _, _, _, info = env.step(action)
        assert info["action_valid"] == (action != "?")
        assert observation.startswith("Not understood.") == (action == "?")
    assert not set("#_√") & set(info["instruction"])
    restored = SokobanEnv("visual", "test").restore(env.snapshot())[1]
    assert np.array_equal(restored["image"], info["image"])
    assert restored["turn"] == 4
    while (action := env.expert_action()) is not None:
        info = env.step(action)[4]
    assert info["success"]
    assert np.array_equal(info["image"], draw_board(env.snapshot().board))


def test_boards_have_one_key_if_and_only_if_they_have_one_picture() -> None:
    env = SokobanEnv("visual")
    by_key: dict[bytes, bytes] = {}
    for task in env.panel.tasks[:300]:
        _, info = env.reset(options={"task": task.id})
        for action in ("up", "left", "up"):
            by_key.setdefault(info["state_key"], info["image"].tobytes())
            assert by_key[info["state_key"]] == info["image"].tobytes()
            info = env.step(action)[4]
    assert len(set(by_key.values())) == len(by_key) > 300


def test_text_presets_carry_no_picture_and_render_one_on_demand() -> None:
    env = SokobanEnv("8x8-2box", "test", render_mode="rgb_array")
    _, info = env.reset(seed=0)
    assert "image" not in info
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert picture.shape == (128, 128, 3)
    assert isinstance(env.snapshot(), Snapshot)


def test_pictures_come_at_a_fair_rate() -> None:
    board = "\n".join(["######"] * 6)
    draw_board(board)
    began = time.perf_counter()
    for _ in range(500):
        draw_board(board)
    # A tenth of the promised 20,000 a second, whatever machine this is and whatever else it does.
    assert time.perf_counter() - began < 500 / 2_000
