"""The measurements run and name what they measure; how fast is for `make bench` to say."""

from __future__ import annotations

import pytest

from agentbench_credit.datasets import package
from agentbench_credit.envs.tools import bench
from agentbench_credit.errors import DataSetError


def test_every_promised_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        package("bfcl")
    except DataSetError as error:
        pytest.skip(f"BFCL cannot be had: {error}")
    presets = ("bfcl-multi-turn", "bfcl-single-turn")
    monkeypatch.setattr(bench, "TASKS", 2)
    monkeypatch.setattr(bench, "PRESETS", presets)
    speeds = bench.bench()
    measures = ("first reset s", "reset ms", "steps/s")
    assert speeds.keys() == {f"{preset}: {measure}" for preset in presets for measure in measures}
    assert all(value > 0 for value in speeds.values())
