"""The command that lists the methods, shows their pages and runs them over a trajectory file."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import references
from agentbench_credit.credit import METHODS
from agentbench_credit.credit.__main__ import main
from agentbench_credit.errors import AgentBenchError
from agentbench_credit.trajectory_io import read_trajectories, write_trajectories
from models import save_model


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three groups: one all equal, one with a repeated state, one whose second rollout has no reward."""
    token = [{"logp": -1.0}] * 2

    def rollout(rewards: list[float | None], states: list[int]) -> references.Rollout:
        return references.Rollout(rewards, states, [token] * len(rewards))

    world = [
        [rollout([1.0], [0]), rollout([1.0], [0])],
        [rollout([0.0, 1.0], [0, 1]), rollout([0.0, 0.0], [0, 1])],
        [rollout([1.0], [5]), rollout([None], [6])],
    ]
    path = tmp_path / "rollouts.parquet"
    trajectories = [
        replace(references.trajectory(f"task{g}", r), sampling={"temperature": 1.0})
        for g, group in enumerate(world)
        for r in group
    ]
    write_trajectories(path, trajectories)
    return path


def rows(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {row[0].split(" ")[0]: row for row in cells if row[0]}


def test_the_list_says_when_to_use_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    text = capsys.readouterr().out
    shown = rows(text)
    assert set(shown) == set(METHODS.names())
    for name in METHODS.names():
        method = METHODS.get(name)
        assert method.paper in shown[name]
        assert ("¹" in shown[name][2]) == method.is_reconstruction
        assert method.summary.split(" ")[0] in text
    assert "a reconstruction" in text


def test_show_prints_the_page_and_an_unknown_name_is_mended(capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "gear"])
    text = capsys.readouterr().out
    assert text.startswith("# gear\n")
    assert "## Worked example" in text
    with pytest.raises(AgentBenchError, match="did you mean gae or gear"):
        main(["show", "gaer"])
    with pytest.raises(AgentBenchError, match="name a method"):
        main(["show"])


def test_check_prints_what_each_method_makes_of_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(file), "--method", "grpo", "gigpo", "gear"])
    text = capsys.readouterr().out
    shown = rows(text)
    # Two of six rollouts get an advantage: 0.7071 each.
    assert shown["grpo"][1:4] == ["trajectory", "0.236", "33.3"]
    assert "zero_signal_groups 2" in text
    assert "singleton_share 0.25" in shown["gigpo"][4]
    assert "not run: reads entropy" in shown["gear"][4]
    assert "rollouts 6, excluded rollouts 1, groups 3, group size min 1, group size max 2" in text


def test_check_computes_signals_with_a_model(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_model(tmp_path / "model")
    main(["check", str(file), "--method", "high_entropy", "gear", "--model", str(model)])
    shown = rows(capsys.readouterr().out)
    assert shown["gear"][1] == "token"
    # Nobody showed the teacher anything: no divergence, no anchor, the credit of grpo, on 8 of 16 tokens.
    assert shown["gear"][2] == "0.354"
    assert "anchors 0" in shown["gear"][4]
    assert "taught_share 0" in shown["gear"][4]
    assert shown["high_entropy"][1] == "token"


def test_check_refuses_signals_of_greedy_rollouts_and_a_table_without_a_row(file: Path, tmp_path: Path) -> None:
    greedy = [replace(t, sampling={"temperature": 0.0}) for t in read_trajectories(file)]
    path = tmp_path / "greedy.jsonl"
    write_trajectories(path, greedy)
    with pytest.raises(AgentBenchError, match="not all sampled at one temperature above 0"):
        main(["check", str(path), "--method", "high_entropy", "--model", str(save_model(tmp_path / "model"))])
    with pytest.raises(AgentBenchError, match="no method could run"):
        main(["check", str(file), "--method", "gear"])


def test_check_says_what_makes_credit_empty(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = tmp_path / "alone.jsonl"
    write_trajectories(alone, read_trajectories(file)[:1])
    main(["check", str(alone), "--method", "grpo", "opsd"])
    text = capsys.readouterr().out
    assert "no group has two rollouts" in text
    assert "for opsd the teacher sees what the student sees" in text


def test_check_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(AgentBenchError, match=r"name a \.parquet or \.jsonl file"):
        main(["check"])
    empty = tmp_path / "empty.jsonl"
    write_trajectories(empty, [])
    with pytest.raises(AgentBenchError, match="no rollouts"):
        main(["check", str(empty)])


def test_text_from_an_environment_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    hostile = [
        replace(references.trajectory("\x1b[31mred", references.Rollout([1.0], [0], [[{"logp": -np.inf}]])), seed=i)
        for i in range(2)
    ]
    path = tmp_path / "hostile.jsonl"
    write_trajectories(path, hostile)
    run = [sys.executable, "-m", "agentbench_credit.credit", "check", str(path), "--method", "grpo"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode != 0
    assert "\x1b" not in done.stderr + done.stdout
    assert len(done.stderr.strip().splitlines()) == 1
