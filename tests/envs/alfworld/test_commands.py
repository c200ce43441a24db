"""Both spellings of putting something down mean one command; nothing inside a name is replaced."""

from __future__ import annotations

import pytest

from agentbench_credit.envs.alfworld.commands import understand

NEW = ("look", "move onion 1 to sinkbasin 1", "move pen in cup 1 to fridge 1")
OLD = ("look", "put onion 1 in/on sinkbasin 1")


@pytest.mark.parametrize(
    ("action", "meaning"),
    [
        ("look", "look"),
        (" look\n", "look"),
        ("move onion 1 to sinkbasin 1", NEW[1]),
        ("put onion 1 in/on sinkbasin 1", NEW[1]),
        ("put onion 1 in sinkbasin 1", NEW[1]),
        ("put onion 1 on sinkbasin 1", NEW[1]),
        ("put pen in cup 1 in/on fridge 1", None),
        ("move pen in cup 1 to fridge 1", NEW[2]),
        ("put onion 1 to sinkbasin 1", None),
        ("put onion 1 inside sinkbasin 1", None),
        ("move onion 1 in/on sinkbasin 1", None),
        ("put onion 1 in/on fridge 1", None),
        ("put  onion 1 in/on sinkbasin 1", None),
        ("put onion 1 in/on sinkbasin 1 and look", None),
        ("LOOK", None),
        ("", None),
        ("put in/on", None),
    ],
)
def test_new_games(action: str, meaning: str | None) -> None:
    assert understand(action, NEW) == meaning


@pytest.mark.parametrize("action", ["move onion 1 to sinkbasin 1", "put onion 1 in sinkbasin 1", OLD[1]])
def test_old_games(action: str) -> None:
    assert understand(action, OLD) == OLD[1]
