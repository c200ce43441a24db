"""The measurement runs and names what it measures; how fast is for `make bench` to say."""

from __future__ import annotations

import pytest

from agentbench_credit.envs.alfworld import bench
from alfworld_games import needs_textworld


@needs_textworld
def test_every_promised_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "GAMES", 2)
    monkeypatch.setattr(bench, "REAL_STEPS", 3)
    speeds = bench.bench()
    steps = {f"{size} steps/s{new}" for size in ("small", "full") for new in ("", ", games new")}
    times = {f"full {name}" for name in ("first reset ms", "reset ms", "plan ms")}
    largest = {f"full {name} largest ms" for name in ("first reset", "reset", "plan")}
    real = {"full TextWorld steps/s", "full TextWorld first reset ms", "full TextWorld reset ms"}
    assert speeds.keys() == steps | times | largest | real
    assert all(value > 0 for value in speeds.values())
