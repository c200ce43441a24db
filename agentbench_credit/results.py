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
from agentbench_credit.stats import wilson_interval
from agentbench_credit.trajectory import Trajectory

if TYPE_CHECKING:
    from rich.table import Table

_DETAILS = ("turns", "tokens", "invalid %", "errors", "seconds")

RESULT_VERSION = 1
"""Version of the result file's layout."""


@dataclass(frozen=True)
class Metrics:
    """What one evaluation measured; the denominator of every rate is the number of tasks or turns asked for."""

    tasks: int
    """Tasks of the panel that were played, failures of any kind included."""
    successes: int
    """Tasks solved."""
    success: float
    """Share of tasks solved."""
    success_low: float
    """Lower end of the 95 % Wilson interval."""
    success_high: float
    """Upper end of the 95 % Wilson interval."""
    turns: float
    """Mean turns per task."""
    tokens: float
    """Mean sampled tokens per task."""
    invalid_actions: float
    """Share of turns whose action the environment refused."""
    truncated: int
    """Rollouts cut by a limit."""
    errors: int
    """Rollouts ended by an exception; they count as failures."""
    seconds: float
    """Wall time of generation and environment."""


def measure(trajectories: Sequence[Trajectory]) -> Metrics:
    """Return the metrics of an evaluation with one rollout per task.

    Args:
        trajectories: At least one.

    Returns:
        The metrics.
    """
    tasks, turns = len(trajectories), [turn for t in trajectories for turn in t.turns]
    successes = sum(t.success for t in trajectories)
    interval = wilson_interval(successes, tasks)
    return Metrics(
        tasks=tasks,
        successes=successes,
        success=successes / tasks,
        success_low=interval.low,
        success_high=interval.high,
        turns=len(turns) / tasks,
        tokens=sum(t.n_tokens for t in trajectories) / tasks,
        invalid_actions=sum(not turn.action_valid for turn in turns) / max(len(turns), 1),
        truncated=sum(t.state == "truncated" for t in trajectories),
        errors=sum(t.state == "error" for t in trajectories),
        seconds=sum(sum(t.timings.values()) for t in trajectories),
    )


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


def table(results: Sequence[dict[str, Any]], *, narrow: bool = False) -> Table:
    """Return the results as a table for the terminal, one row per method and benchmark.

    Args:
        results: What to show.
        narrow: Leave out cost and counts, for terminals of 80 columns.

    Returns:
        The table.
    """
    from rich.table import Table

    shown = Table(title="success on held-out tasks, with 95 % Wilson intervals")
    for column in ("benchmark", "method"):
        shown.add_column(column, no_wrap=True)
    for column in ("success %", "95 % interval", "tasks", "updates", *(() if narrow else _DETAILS)):
        shown.add_column(column, justify="right", no_wrap=True)
    for result in results:
        m = Metrics(**result["metrics"])
        mark = " ¹" if result["reconstruction"] else ""
        interval = f"{100 * m.success_low:.1f} – {100 * m.success_high:.1f}"
        cells = [result["benchmark"], result["method"] + mark, f"{100 * m.success:.1f}", interval, str(m.tasks)]
        details = [f"{m.turns:.2f}", f"{m.tokens:.1f}", f"{100 * m.invalid_actions:.1f}", str(m.errors)]
        shown.add_row(
            *cells,
            "?" if result["updates"] is None else str(result["updates"]),
            *([] if narrow else [*details, f"{m.seconds:.1f}"]),
        )
    if any(result["reconstruction"] for result in results):
        shown.caption = "¹ a reconstruction: only the paper's abstract is public, the numbers inside are ours"
    return shown
