"""The measurements run and name what they measure; how fast is for `make bench` to say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tantivy")
bench = pytest.importorskip("agentbench_credit.envs.webshop.bench", exc_type=ImportError)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "STEPS", 500)
    monkeypatch.setattr(bench, "TASKS", 20)


def test_every_promised_speed_is_measured() -> None:
    speeds = bench.bench()
    assert speeds.keys() == {
        "steps/s",
        "expert's steps/s",
        "reset microseconds",
        "new search ms",
        "make the products ms",
        "build the index ms",
    }
    assert all(value > 0 for value in speeds.values())


def test_the_scale_check_makes_packs_indexes_and_searches(tmp_path: Path) -> None:
    measured = bench.scale(2000, tmp_path)
    assert all(value > 0 for value in measured.values())
    assert measured["search page median ms"] <= measured["search page largest ms"]
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"packed", "index"}
