"""The measurement runs and names what it measures; how fast is for `make bench` to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentbench_credit.envs.sokoban import bench


def test_every_promised_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "STEPS", 2_000)
    monkeypatch.setattr(bench, "LEVELS", 20)
    monkeypatch.delenv("AGENTBENCH_DATA", raising=False)
    speeds = bench.bench()
    own = {"steps/s", "reset microseconds", "solver median ms", "solver largest ms", "pictures/s"}
    assert speeds.keys() == own | {"generate 6x6-1box ms", "generate 8x8-2box ms"} | bench.GYM_SOKOBAN.keys()
    assert all(value > 0 for value in speeds.values())
    assert speeds["solver median ms"] <= speeds["solver largest ms"]


def test_boxoban_is_measured_where_its_levels_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boxoban").mkdir()
    levels = "; 0\n#####\n#@$.#\n#####\n\n; 1\n######\n#@#$.#\n######\n"
    (tmp_path / "boxoban" / "unfiltered-test-000.txt").write_text(levels)
    monkeypatch.setenv("AGENTBENCH_DATA", str(tmp_path))
    monkeypatch.setattr(bench, "BOXOBAN_EVERY", 1)
    speeds = bench._boxoban()
    assert len(speeds) == 4
    assert speeds["boxoban fewest moves: share in 2 s"] == speeds["boxoban fewest pushes: share in 2 s"] == 0.5
