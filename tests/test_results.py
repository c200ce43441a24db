"""Metrics of trajectories, result files and the table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agentbench_credit.errors import ConfigError
from agentbench_credit.results import RESULT_VERSION, Metrics, measure, read_results, table, versions
from agentbench_credit.stats import clustered_interval, wilson_interval
from agentbench_credit.trajectory import State, Trajectory, Turn


def trajectory(
    task: str,
    *,
    success: bool,
    state: State = "ended",
    turns: int = 2,
    valid: bool = True,
    counted: dict[str, Any] | None = None,
) -> Trajectory:
    ids = np.arange(3, dtype=np.int32)
    turn = Turn("o", b"k", None, ids, ids, np.zeros(3, np.float32), "stop", "a", "a", valid, 1.0, info=counted or {})
    timings = {"generate": 1.0, "environment": 0.5}
    return Trajectory("e", {}, task, task, 0, "p", {}, (turn,) * turns, b"", state, success, timings=timings)


def test_every_failure_is_in_the_denominator() -> None:
    measured = measure(
        [
            trajectory("a", success=True),
            trajectory("b", success=False, state="truncated", turns=5, valid=False),
            trajectory("c", success=False, state="error", turns=0),
            trajectory("d", success=True, turns=1),
        ]
    )
    assert (measured.tasks, measured.successes, measured.success) == (4, 2, 0.5)
    assert (measured.success_low, measured.success_high) == wilson_interval(2, 4)
    assert measured.turns == 8 / 4
    assert measured.tokens == 24 / 4
    assert measured.invalid_actions == 5 / 8
    assert (measured.truncated, measured.errors) == (1, 1)
    assert measured.seconds == 6.0


def test_repeats_of_a_task_are_counted_as_such() -> None:
    outcomes = {"a": (True, True), "b": (True, False), "c": (False, False), "d": (False, True)}
    counted = {"unparsed": 1.0}
    measured = measure(
        [
            trajectory(task, success=each, counted=None if each else counted)
            for task, tries in outcomes.items()
            for each in tries
        ]
    )
    assert (measured.tasks, measured.repeats, measured.successes, measured.success) == (4, 2, 4, 0.5)
    assert (measured.any_success, measured.all_success) == (3 / 4, 1 / 4)
    assert (measured.success_low, measured.success_high) == clustered_interval([1, 0.5, 0, 0.5], 2)
    assert measured.details == {"unparsed": 0.5}


def result(method: str, *, reconstruction: bool = False, **metrics: Any) -> dict[str, Any]:
    values = dict.fromkeys(Metrics.__annotations__, 0) | {"tasks": 512, "success": 0.401, "success_high": 0.5}
    values |= {"repeats": 1}
    return {
        "result_version": RESULT_VERSION,
        "benchmark": "sokoban",
        "method": method,
        "reconstruction": reconstruction,
        "updates": 60,
        "metrics": values | metrics,
    }


def printed(results: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=130).print(table(results))
    return stream.getvalue()


def test_the_table_shows_figures_and_marks_reconstructions() -> None:
    text = printed([result("grpo"), result("gear", reconstruction=True)])
    assert "40.1" in text
    assert "0.0 – 50.0" in text
    assert "gear ¹" in text
    assert "grpo ¹" not in text
    assert "reconstruction" in text
    assert "reconstruction" not in printed([result("grpo")])


def test_the_table_has_columns_for_repeats_only_if_there_are_any() -> None:
    assert "pass@k" not in printed([result("grpo")])
    text = printed([result("grpo", repeats=32, any_success=0.75, all_success=0.125)])
    assert all(cell in text for cell in ("pass@k", "pass^k", "32", "75.0", "12.5"))


def test_results_are_read_back_and_torn_ones_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "result.json").write_text(json.dumps(result("grpo")))
    (tmp_path / "b" / "result.json").write_text(json.dumps(result("gear")))
    assert [found["method"] for found in read_results(tmp_path)] == ["grpo", "gear"]
    (tmp_path / "b" / "result.json").write_text('{"result_version": 1')
    with pytest.raises(ConfigError, match=r"b/result\.json: not a result file"):
        read_results(tmp_path)
    (tmp_path / "b" / "result.json").write_text(json.dumps(result("gear") | {"result_version": 99}))
    with pytest.raises(ConfigError, match="result version 99"):
        read_results(tmp_path)


def test_versions_name_what_a_result_depends_on() -> None:
    found = versions()
    assert {"agentbench_credit", "python", "torch", "transformers", "numpy", "gymnasium"} <= found.keys()
    assert found["numpy"] == np.__version__
