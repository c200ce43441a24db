"""Data sets and what environments play, as commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentbench_credit import data
from agentbench_credit.datasets import DATASETS
from agentbench_credit.env import ENVIRONMENTS
from agentbench_credit.errors import ConfigError, DataSetError


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AGENTBENCH_DATA", raising=False)


def test_list_names_data_sets_and_environments_with_presets_and_splits(capsys: pytest.CaptureFixture[str]) -> None:
    data.main(["list"])
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("environment ")]
    assert len(lines) == len(ENVIRONMENTS.names())
    assert any(line.startswith("environment sokoban: 6x6-1box") and line.endswith("test)") for line in lines)
    assert all(name[:8] in text for name in DATASETS)


def test_build_starts_every_task_of_every_split(capsys: pytest.CaptureFixture[str]) -> None:
    data.main(["build", "sokoban", "--preset", "6x6-1box"])
    lines = capsys.readouterr().out.splitlines()
    panel = ENVIRONMENTS.get("sokoban").load_panel("6x6-1box", "test")
    assert f"sokoban 6x6-1box/test: {len(panel)} tasks of {panel}, {panel.sha256}" in lines
    assert len(lines) == 3


def test_check_tells_what_is_here_and_fails_on_what_was_named_and_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    data.main(["check"])
    assert capsys.readouterr().out.splitlines() == [f"{name}: not here" for name in DATASETS]
    with pytest.raises(DataSetError, match=r"broken or missing — python -m agentbench_credit\.data fetch aime24"):
        data.main(["check", "aime24"])


@pytest.mark.parametrize(
    ("argv", "error", "what"),
    [
        (["build"], ConfigError, "nothing to build — name one or more of alfworld"),
        (["fetch"], ConfigError, "nothing to fetch — name one or more of aime24"),
        (["fetch", "aime"], DataSetError, "no data set 'aime' — did you mean aime2"),
        (["build", "sokoban", "--preset", "7x7"], ConfigError, "no preset '7x7'"),
    ],
)
def test_wrong_arguments_are_typed_errors(argv: list[str], error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        data.main(argv)
