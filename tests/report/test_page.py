"""The report: everything from models and environments is escaped, and missing parts are left out."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from agentbench_credit.report.page import write_report
from agentbench_credit.results import Metrics
from agentbench_credit.run_folder import TRAINING_LOG, evaluation_folder, training_folder
from agentbench_credit.trajectory import Trajectory, Turn
from agentbench_credit.trajectory_io import write_trajectories

HOSTILE = "<script>alert(1)</script>&<img src=x onerror=alert(2)>{{ 7 * 7 }}"


def make_run(out: Path, method: str, *, log: str | None) -> dict[str, Any]:
    ids = np.arange(2, dtype=np.int32)
    turn = Turn(HOSTILE, b"k", None, ids, ids, np.zeros(2, np.float32), "stop", HOSTILE, f"go {HOSTILE}", False, 1.0)
    played = [Trajectory("e", {}, f"task-{i}", "g", 0, "p", {}, (turn,), b"", "ended", i == 0) for i in range(3)]
    write_trajectories(evaluation_folder(out, method, 5, 0, "b") / "trajectories.jsonl", played)
    if log is not None:
        folder = training_folder(out, method, 5, 0)
        folder.mkdir(parents=True)
        (folder / TRAINING_LOG).write_text(log)
    metrics = dict.fromkeys(Metrics.__annotations__, 0) | {"success": 0.25, "success_low": 0.1, "success_high": 0.5}
    common = {"benchmark": "b", "method": method, "budget": 5, "seed": 0, "updates": 5, "model": HOSTILE}
    return common | {"reconstruction": method == "gear", "metrics": metrics}


class Tags(HTMLParser):
    """Collects the names of all tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_results_curves_and_episodes_and_escapes_hostile_text(tmp_path: Path) -> None:
    rows = "update,success_rate\n1,0.25\n2,0.5\n"
    results = [make_run(tmp_path, "grpo", log=rows), make_run(tmp_path, "gear", log=rows)]
    path = write_report(tmp_path, results)
    tags = Tags(path.read_text("utf-8"))
    assert not {"script", "img"} & set(tags.names)
    assert f"go {HOSTILE}" in tags.text, "shown as text"
    assert "25.0 %" in tags.text
    assert "reconstruction" in tags.text
    assert tags.names.count("figure") == 1
    assert [f"task-{i}" in tags.text for i in range(3)] == [True] * 3


def test_a_log_without_updates_gives_no_curves(tmp_path: Path) -> None:
    results = [make_run(tmp_path, "grpo", log="\n"), make_run(tmp_path, "gear", log=None)]
    tags = Tags(write_report(tmp_path, results).read_text("utf-8"))
    assert "figure" not in tags.names
    assert "task-2" in tags.text
