"""The measurement itself, and the speeds that the environment promises, with room for a busy machine."""

from __future__ import annotations

import pytest

from agentbench_credit.envs.sokoban import bench


def test_speeds_are_of_the_promised_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "STEPS", 10_000)
    monkeypatch.setattr(bench, "LEVELS", 50)
    speeds = bench.bench()
    assert speeds["steps/s"] > 25_000
    assert speeds["reset microseconds"] < 50
    assert speeds["solver median ms"] < 5
    assert 0 < speeds["generate 6x6-1box ms"] < speeds["generate 8x8-2box ms"]
