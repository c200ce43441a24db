"""The measurement runs and names what it measures; how fast is for `make bench` to say."""

from __future__ import annotations

import pytest

from agentbench_credit.envs.sokoban import bench


def test_every_promised_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "STEPS", 2_000)
    monkeypatch.setattr(bench, "LEVELS", 20)
    speeds = bench.bench()
    own = {"steps/s", "reset microseconds", "solver median ms", "solver largest ms"}
    assert speeds.keys() == own | {"generate 6x6-1box ms", "generate 8x8-2box ms"} | bench.GYM_SOKOBAN.keys()
    assert all(value > 0 for value in speeds.values())
    assert speeds["solver median ms"] <= speeds["solver largest ms"]
