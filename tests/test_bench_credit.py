"""The comparison of credit methods with their references."""

from __future__ import annotations

import pytest
from rich.console import Console

import bench_credit
from agentbench_credit.credit import METHODS
from references import REFERENCES


def test_every_method_agrees_with_its_reference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_credit, "TURNS", 30)
    Console(width=100).print(bench_credit.main(groups=1, repeats=1))
    rows = [[cell.strip() for cell in row.split("│")] for row in capsys.readouterr().out.splitlines() if "│" in row]
    assert {row[1].removesuffix(" ¹") for row in rows} == set(METHODS.names()) - {"opsd", "sdpo"} == set(REFERENCES)
    assert all(float(row[5]) < 1e-9 for row in rows)
