"""The benchmark command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import agentbench_credit
from agentbench_credit import bench
from agentbench_credit.bench import find_benches, main
from agentbench_credit.credit import bench as credit_bench
from agentbench_credit.errors import ConfigError, EnvironmentContractError


def test_bench_modules_are_found_at_any_depth_and_none_is_imported(tmp_path: Path) -> None:
    for folder in ("plain", "fast", "fast/deep", "fast/deep/deeper", "no_package"):
        (tmp_path / folder).mkdir()
        if folder != "no_package":
            (tmp_path / folder / "__init__.py").write_text("raise RuntimeError")
    files = ("fast/bench.py", "fast/deep/deeper/bench.py", "no_package/bench.py", "plain/benches.py", "model_bench.py")
    for file in files:
        (tmp_path / file).write_text("raise RuntimeError")
    assert find_benches([str(tmp_path)], "house") == {
        "model": "house.model_bench",
        "fast": "house.fast.bench",
        "fast.deep.deeper": "house.fast.deep.deeper.bench",
    }


def test_the_parts_with_a_promised_speed_have_one() -> None:
    found = find_benches(agentbench_credit.__path__, "agentbench_credit")
    assert found["credit"] == "agentbench_credit.credit.bench"
    assert found["signals"] == "agentbench_credit.signals_bench"
    assert {"envs.alfworld", "envs.webshop"} <= found.keys()
    assert found["envs.sokoban"] == "agentbench_credit.envs.sokoban.bench"


def test_one_part_is_measured_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("ROLLOUTS", 8), ("TURNS", 40), ("GROWTH", 2)):
        monkeypatch.setattr(credit_bench, name, value)
    main(["--only", "credit"])
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert {row[1].strip() for row in rows} == {"credit"}
    measures = {row[2].strip(): float(row[3].replace(",", "")) for row in rows}
    assert measures["grpo turns/s"] > 0
    assert measures["gear (a reconstruction) Mtokens/s"] > 0


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--only: no benchmark 'cradit' — known: .*credit"):
        main(["--only", "cradit"])


def test_a_part_that_cannot_run_is_said_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> dict[str, float]:
        raise EnvironmentContractError("tantivy is not installed", mend="pip install it")

    monkeypatch.setattr(bench, "find_benches", lambda *_: {"": "", "shop": "shop.bench", "rest": "rest.bench"})
    parts = {"shop.bench": SimpleNamespace(bench=missing), "rest.bench": SimpleNamespace(bench=lambda: {"speed": 5.0})}
    monkeypatch.setattr(bench.importlib, "import_module", parts.__getitem__)
    main([])
    text = capsys.readouterr().out
    assert "shop is left out: tantivy is not installed" in text
    assert "speed" in text
    with pytest.raises(EnvironmentContractError):
        main(["--only", "shop"])
