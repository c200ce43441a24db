"""The report of an evaluation: one self-contained page with table, learning curves and episodes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench_credit.cache import atomic_write_text
from agentbench_credit.run_folder import TRAINING_LOG, evaluation_folder, training_folder

if TYPE_CHECKING:
    from agentbench_credit.trajectory import Trajectory

EPISODES = 6
"""Tasks whose episodes are shown, the first of the panel."""


def write_report(out: Path, results: Sequence[dict[str, Any]]) -> Path:
    """Write ``report.html``.

    Args:
        out: The run's folder, which holds what was trained and evaluated.
        results: Results in the order of the table.

    Returns:
        The page's path.
    """
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    paths = {r["method"]: training_folder(out, r["method"], r["budget"], r["seed"]) / TRAINING_LOG for r in results}
    logs = {method: path for method, path in paths.items() if path.exists() and path.stat().st_size > 1}
    folders = [evaluation_folder(out, r["method"], r["budget"], r["seed"], r["benchmark"]) for r in results]
    curves = ""
    if logs and find_spec("matplotlib") is None:
        warnings.warn("the report has no learning curves: pip install 'agentbench-credit[report]'", stacklevel=2)
    elif logs:
        from agentbench_credit.report.curves import learning_curves

        curves = learning_curves(logs)
    by_benchmark: dict[str, list[tuple[dict[str, Any], list[Trajectory]]]] = {}
    for result, folder in zip(results, folders, strict=True):
        by_benchmark.setdefault(result["benchmark"], []).append((result, _episodes(folder)))
    environment = Environment(loader=PackageLoader("agentbench_credit.report"), autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.jinja").render(
        results=results,
        curves=Markup(curves),  # drawn by matplotlib, which escapes the methods' names
        benchmarks=by_benchmark,
        raw=json.dumps(results, indent=2, ensure_ascii=False),
    )
    path = out / "report.html"
    atomic_write_text(path, page)
    return path


def _episodes(folder: Path) -> list[Trajectory]:
    """Return one rollout of each of a folder's first tasks, so that methods stand side by side."""
    from agentbench_credit.trajectory_io import read_trajectories

    by_task: dict[str, Trajectory] = {}
    for trajectory in read_trajectories(folder / "trajectories.jsonl"):
        by_task.setdefault(trajectory.task_id, trajectory)
    return [by_task[task] for task in sorted(by_task)[:EPISODES]]
