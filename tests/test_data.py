"""Listing and building what environments play, as commands."""

from __future__ import annotations

import pytest

from agentbench_credit import data
from agentbench_credit.env import ENVIRONMENTS
from agentbench_credit.errors import ConfigError


def test_list_names_environments_presets_and_splits(capsys: pytest.CaptureFixture[str]) -> None:
    data.main(["list"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(ENVIRONMENTS.names())
    assert any(line.startswith("sokoban: presets 6x6-1box") and line.endswith("test") for line in lines)


def test_build_starts_every_task_of_every_split(capsys: pytest.CaptureFixture[str]) -> None:
    data.main(["build", "sokoban", "--preset", "6x6-1box"])
    lines = capsys.readouterr().out.splitlines()
    panel = ENVIRONMENTS.get("sokoban").load_panel("6x6-1box", "test")
    assert f"sokoban 6x6-1box/test: {len(panel)} tasks of {panel}, {panel.sha256}" in lines
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("argv", "what"),
    [(["build"], "no environment to build"), (["build", "sokoban", "--preset", "7x7"], "no preset '7x7'")],
)
def test_wrong_arguments_are_typed_errors(argv: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        data.main(argv)
