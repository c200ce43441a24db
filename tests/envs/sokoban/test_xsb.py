"""XSB: both ways, files as they are found in the wild, and errors that name file and line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.env import ENVIRONMENTS
from agentbench_credit.envs.sokoban.env import SokobanEnv
from agentbench_credit.envs.sokoban.generate import generate
from agentbench_credit.envs.sokoban.panels import panel_from_xsb
from agentbench_credit.envs.sokoban.xsb import from_xsb, pack, read_xsb, to_xsb, unpack
from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.policy.base import Sampling
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.policy.scripted import ScriptedPolicy
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.trajectory_io import read_trajectories, write_trajectories
from models import small_tokenizer

XSB = "  ####\n###  #\n#@$ .#\n# *  #\n######"
BOARD = "__####\n###__#\n#PX_O#\n#_√__#\n######"


def write(folder: Path, text: str, name: str = "levels.xsb") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_all_seven_symbols_translate_both_ways() -> None:
    assert from_xsb(XSB) == BOARD
    assert to_xsb(BOARD) == XSB
    assert from_xsb("#####\n#+$*#\n#####") == "#####\n#SX√#\n#####"
    assert to_xsb("#####\n#SX√#\n#####") == "#####\n#+$*#\n#####"


def test_dash_and_underscore_are_floor_and_short_rows_are_filled_up() -> None:
    assert from_xsb("--####\n###_-#\n#@$-.#\n#_*_-#\n######") == BOARD
    assert from_xsb("####\n#@.#\n# $###\n#    #\n######") == "####__\n#PO#__\n#_X###\n#____#\n######"


@given(seed=st.integers(0, 10**9))
def test_every_generated_board_survives_the_round_trip(seed: int) -> None:
    rng = random.Random(seed)
    board = generate(rng.randint(5, 9), rng.randint(5, 9), 1, rng)
    if board is not None:
        assert from_xsb(to_xsb(board)) == board
        assert unpack(pack(to_xsb(board))) == to_xsb(board)


def test_a_file_with_titles_blank_lines_crlf_and_trailing_text(tmp_path: Path) -> None:
    text = (
        "\ufeffA collection\r\nby somebody\r\n\r\n; 1\r\n" + XSB.replace("\n", "\r\n") + "\r\n\r\n\r\n"
        "; 'Second' #2 @@\r\n#####\r\n#@$.#\r\n#####   \r\nTitle: Level #2\r\nAuthor: A. B.\r\n\r\n"
        "#3\r\n#####\r\n#.$@#\r\n#####\r\nThat is all."
    )
    assert read_xsb(write(tmp_path, text)) == [(BOARD, 5), ("#####\n#PXO#\n#####", 13), ("#####\n#OXP#\n#####", 20)]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_line_ends_and_encodings_of_all_systems(tmp_path: Path, ends: str, encoding: str) -> None:
    path = tmp_path / "levels.xsb"
    path.write_bytes(f"; \u2028 one\x0b\n{XSB}\n\n  ; #two#\n{XSB}".replace("\n", ends).encode(encoding))
    assert read_xsb(path) == [(BOARD, 2), (BOARD, 9)]


def test_run_length_coded_levels_in_one_line_or_several(tmp_path: Path) -> None:
    text = f"; one line\n2-4#|3#2-#|#@$-.#|#-*2-#|6#\n\n-3#\n-#.#\n-#$#\n-#@#\n-3#\n\n{pack(XSB)}\n"
    assert pack(XSB) == "2-4#|3#2-#|#@$-.#|#-*2-#|6#"
    assert read_xsb(write(tmp_path, text)) == [(BOARD, 2), ("_###\n_#O#\n_#X#\n_#P#\n_###", 4), (BOARD, 10)]


def test_comments_and_titles_with_walls_in_them_are_no_rows(tmp_path: Path) -> None:
    text = (
        "---- Level #1 ----\n###### Easy ######\n" + XSB + "\nComment:\nNot this:\n#####\n#@$ #\n#####\n"
        "Comment-End:\nSolution: 2rD#\n\n#2\n" + XSB + "\ncomment: in one line #####\n"
    )
    assert [level.line for level in read_xsb(write(tmp_path, text))] == [3, 17]


def test_text_that_is_not_utf8_may_stand_beside_levels(tmp_path: Path) -> None:
    path = tmp_path / "latin.xsb"
    path.write_bytes(b"; by M\xfcller\n#####\n#@$.#\n#####\n")
    assert [level.line for level in read_xsb(path)] == [2]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("; one\n#####\n#@$x.#\n#####\n", 3, "'x' is not an XSB character"),
        ("#####\n#@$.#\n#####\n\n; two\n#####\n# $.#\n#####", 6, "no player"),
        ("#####\n#@$.#\n#####\n\n\n######\n#@$$.#\n######", 6, "2 boxes for 1 targets"),
        ("\n######\n#@@$.#\n######", 2, "2 players"),
        ("#####\n#@$.\n#####", 1, "walls do not close"),
        ("#" * 200 + "\n" + "#\n" * 100, 1, "more than 10000 cells"),
        ("\n5#|#@$.#|5#\n\n5#|#$2.#|5#\n", 4, "no player"),
        ("\n5#|#@x.#|5#\n", 2, "'x' is not an XSB character"),
        ("; one\n99999999999999999999#\n", 2, "more than 10000 cells"),
        ("\n#####\n#@$.#\n###2\n", 4, "'2' is not an XSB character"),
        ("#####\n#@$.#\n#\t###\n", 3, "is not an XSB character"),
        (f"{XSB}\n\nComment:\n{XSB}\n", 7, "the comment has no end"),
    ],
)
def test_a_bad_level_is_named_by_file_and_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(EnvironmentContractError) as caught:
        read_xsb(path)
    assert what in caught.value.what
    assert caught.value.where == f"{path} line {line}"


@pytest.mark.parametrize("text", ["", "no levels here\n", "; # only a title\n"])
def test_a_file_without_levels_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(EnvironmentContractError, match="no level in the file"):
        read_xsb(write(tmp_path, text))


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentContractError, match=r"nowhere\.xsb: cannot read"):
        read_xsb(tmp_path / "nowhere.xsb")


def test_any_xsb_file_can_be_played(tmp_path: Path) -> None:
    panel = panel_from_xsb(write(tmp_path, f"{XSB}\n\n#####\n#@$.#\n#####\n", "mine.xsb"))
    assert [task.id for task in panel] == ["mine-0001", "mine-0002"]
    env = SokobanEnv(panel=panel, max_turns=100)
    for task in panel:
        env.reset(options={"task": task.id})
        plan = env.reference()
        assert plan is not None
        for action in plan.split(" || "):
            _, reward, terminated, _, info = env.step(action)
        assert terminated
        assert info["success"]
        assert reward == 10.9


def test_a_level_that_is_solved_from_the_start_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentContractError, match=r"solved\.xsb line 2: the level is solved"):
        panel_from_xsb(write(tmp_path, "; done\n#####\n#@*##\n#####\n", "solved.xsb"))


def test_a_level_file_is_played_and_its_trajectory_stored(tmp_path: Path) -> None:
    levels = write(tmp_path, "#####\n#@$.#\n#####\n", "mine.xsb")
    environment = ENVIRONMENTS.get("sokoban")
    policy = ScriptedPolicy(lambda _: "right", small_tokenizer(), "scripted")
    (played,) = rollout(
        policy,
        lambda: environment.make(levels=str(levels), max_turns=3),
        [Start("mine-0001", "g", 0)],
        prompter=Prompter(policy.tokenizer),
        sampling=Sampling(),
    )
    assert played.success
    write_trajectories(tmp_path / "played.jsonl", [played])
    assert read_trajectories(tmp_path / "played.jsonl")[0].env_kwargs == {"levels": str(levels), "max_turns": 3}
