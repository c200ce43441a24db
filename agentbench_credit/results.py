"""Results of evaluations: what is measured from trajectories, how it is stored, and the table."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench_credit import __version__
from agentbench_credit.errors import ConfigError
from agentbench_credit.stats import clustered_interval
from agentbench_credit.trajectory import Trajectory

if TYPE_CHECKING:
    from rich.table import Table

_COSTS = ("turns", "tokens", "invalid %", "errors", "seconds")

RESULT_VERSION = 2
"""Version of the result file's layout."""


@dataclass(frozen=True)
class Metrics:
    """What one evaluation measured; failures of any kind are in the denominator of every rate."""

    tasks: int
    """Tasks of the panel that were played."""
    repeats: int
    """Rollouts of each task, k."""
    successes: int
    """Rollouts that solved their task."""
    success: float
    """Share of solved rollouts, which is the mean over tasks (mean@k)."""
    success_low: float
    """Lower end of the 95 % interval over tasks, see `stats.clustered_interval`."""
    success_high: float
    """Upper end of the interval."""
    any_success: float
    """Share of tasks that at least one rollout solved (pass@k)."""
    all_success: float
    """Share of tasks that every rollout solved (pass^k)."""
    turns: float
    """Mean turns per rollout."""
    tokens: float
    """Mean sampled tokens per rollout; bytes where the policy's tokens are not known."""
    invalid_actions: float
    """Share of turns whose action the environment refused."""
    truncated: int
    """Rollouts cut by a limit."""
    errors: int
    """Rollouts ended by an exception."""
    seconds: float
    """Wall time of generation and environment."""
    details: dict[str, float]
    """What the environment counted beyond success, such as answers that could not be read: means over rollouts."""


def measure(trajectories: Sequence[Trajectory]) -> Metrics:
    """Return the metrics of an evaluation.

    Args:
        trajectories: At least one; the same number for every task.

    Returns:
        The metrics.
    """
    by_task: dict[str, list[bool]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task_id, []).append(trajectory.success)
    rollouts, turns = len(trajectories), [turn for t in trajectories for turn in t.turns]
    (repeats,) = {len(solved) for solved in by_task.values()}
    interval = clustered_interval([sum(solved) / repeats for solved in by_task.values()], repeats)
    successes = sum(t.success for t in trajectories)
    return Metrics(
        tasks=len(by_task),
        repeats=repeats,
        successes=successes,
        success=successes / rollouts,
        success_low=interval.low,
        success_high=interval.high,
        any_success=sum(map(any, by_task.values())) / len(by_task),
        all_success=sum(map(all, by_task.values())) / len(by_task),
        turns=len(turns) / rollouts,
        tokens=sum(t.n_tokens for t in trajectories) / rollouts,
        invalid_actions=sum(not turn.action_valid for turn in turns) / max(len(turns), 1),
        truncated=sum(t.state == "truncated" for t in trajectories),
        errors=sum(t.state == "error" for t in trajectories),
        seconds=sum(sum(t.timings.values()) for t in trajectories),
        details=_details([t.turns[-1].info if t.turns else {} for t in trajectories]),
    )


def _details(counted: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each number; a rollout that has none of a name counts 0."""
    names = sorted({name for each in counted for name in each})
    return {name: sum(float(each.get(name, 0.0)) for each in counted) / len(counted) for name in names}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    found = {"agentbench_credit": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for package in ("torch", "transformers", "numpy", "gymnasium"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return every result below a folder, in the order of their paths.

    Args:
        folder: A run's folder.

    Returns:
        The contents of its ``result.json`` files.

    Raises:
        ConfigError: A file is torn or of another version.
    """
    results = []
    for path in sorted(folder.rglob("result.json")):
        try:
            result = json.loads(path.read_text("utf-8"))
            found = result["result_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError("not a result file", where=str(path), mend="delete it and evaluate again") from error
        if found != RESULT_VERSION:
            raise ConfigError(f"result version {found}, expected {RESULT_VERSION}", where=str(path))
        results.append(result)
    return results


def table(results: Sequence[dict[str, Any]], *, width: int = 120) -> Table:
    """Return the results as a table for the terminal, one row per method and benchmark.

    Args:
        results: What to show.
        width: Columns of the terminal; cost and counts are left out where they do not fit.

    Returns:
        The table.
    """
    from rich.table import Table

    shown = Table(title="success on held-out tasks, with 95 % intervals over tasks")
    repeated = any(result["metrics"]["repeats"] > 1 for result in results)
    narrow = width < (150 if repeated else 115)
    for column in ("benchmark", "method"):
        shown.add_column(column, no_wrap=True)
    repeats = ("k", "pass@k %", "pass^k %") if repeated else ()
    for column in ("success %", "95 % interval", "tasks", *repeats, "updates", *(() if narrow else _COSTS)):
        shown.add_column(column, justify="right", no_wrap=True)
    for result in results:
        m = Metrics(**result["metrics"])
        mark = " ¹" if result["reconstruction"] else ""
        interval = f"{100 * m.success_low:.1f} – {100 * m.success_high:.1f}"
        cells = [result["benchmark"], result["method"] + mark, f"{100 * m.success:.1f}", interval, str(m.tasks)]
        if repeated:
            cells += [str(m.repeats), f"{100 * m.any_success:.1f}", f"{100 * m.all_success:.1f}"]
        cells.append("?" if result["updates"] is None else str(result["updates"]))
        if not narrow:
            cells += [f"{m.turns:.2f}", f"{m.tokens:.1f}", f"{100 * m.invalid_actions:.1f}", str(m.errors)]
            cells.append(f"{m.seconds:.1f}")
        shown.add_row(*cells)
    if any(result["reconstruction"] for result in results):
        shown.caption = "¹ a reconstruction: only the paper's abstract is public, the numbers inside are ours"
    return shown
