"""Playing a benchmark and measuring what came of it; a stopped evaluation goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentbench_credit.benchmarks import Benchmark
from agentbench_credit.cache import atomic_write_text
from agentbench_credit.env import ENVIRONMENTS, Panel
from agentbench_credit.errors import ModelError
from agentbench_credit.policy.prompts import Prompter
from agentbench_credit.results import RESULT_VERSION, measure, versions
from agentbench_credit.rollout import Start, rollout
from agentbench_credit.run_folder import claim
from agentbench_credit.trajectory_io import TrajectoryLog

if TYPE_CHECKING:
    from agentbench_credit.policy.base import Policy, Sampling
    from agentbench_credit.policy.prompts import PromptMode


def evaluate(
    policy: Policy,
    benchmark: Benchmark,
    folder: Path,
    *,
    identity: dict[str, Any],
    seed: int,
    limit: int | None,
    repeats: int,
    sampling: Sampling,
    prompting: tuple[PromptMode, int],
    parallel: int,
) -> dict[str, Any]:
    """Play what the folder does not hold yet of a benchmark, and write ``result.json``.

    Args:
        policy: The policy to evaluate.
        benchmark: What to play.
        folder: Holds ``trajectories.jsonl``, written rollout by rollout, ``run.json`` and ``result.json``.
        identity: Method, model and checkpoint, stored with the result.
        seed: Seed of the sampling; a rollout's seed depends on it, the task and the repeat only.
        limit: First tasks to play, None for all.
        repeats: Rollouts of each task.
        sampling: How tokens are drawn.
        prompting: Mode and history of the prompts.
        parallel: Most episodes under way at once.

    Returns:
        The result.

    Raises:
        ConfigError: The folder holds another evaluation.
        ModelError: Every rollout ended in an error.
    """
    environment = ENVIRONMENTS.get(benchmark.environment)
    panel = environment.load_panel(benchmark.preset, benchmark.split)
    prompter = Prompter(policy.tokenizer, *prompting)
    run = identity | _description(benchmark, panel, sampling, prompter, seed=seed, limit=limit, repeats=repeats)
    claim(folder, run, may_differ=("checkpoint", "tasks", "repeats"))
    with TrajectoryLog(folder / "trajectories.jsonl") as log:
        wanted = _starts(panel, seed, limit, repeats)
        done = {(trajectory.task_id, trajectory.seed): trajectory for trajectory in log.trajectories}
        starts = [start for start in wanted if (start.task_id, start.seed) not in done]
        fresh = rollout(
            policy,
            lambda: environment.make(preset=benchmark.preset, split=benchmark.split),
            starts,
            prompter=prompter,
            sampling=sampling,
            parallel=parallel,
            on_finished=lambda _, trajectory: log.append(trajectory),
            label=f"evaluate {identity['method']} on {benchmark.name}",
        )
    done |= {(trajectory.task_id, trajectory.seed): trajectory for trajectory in fresh}
    played = [done[start.task_id, start.seed] for start in wanted]
    if all(trajectory.state == "error" for trajectory in played):
        what = f"every rollout failed, the first with {played[0].error}"
        raise ModelError(what, where=str(folder), mend="mend the cause and remove this folder")
    metrics = measure(played)
    result = {"result_version": RESULT_VERSION, **run, "versions": versions(), "metrics": asdict(metrics)}
    atomic_write_text(folder / "result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def _description(
    benchmark: Benchmark,
    panel: Panel,
    sampling: Sampling,
    prompter: Prompter,
    *,
    seed: int,
    limit: int | None,
    repeats: int,
) -> dict[str, Any]:
    """Return everything that makes two evaluations comparable."""
    return {
        "benchmark": benchmark.name,
        "environment": benchmark.environment,
        "preset": benchmark.preset,
        "panel": str(panel),
        "panel_version": panel.version,
        "panel_sha256": panel.sha256,
        "tasks": len(panel) if limit is None else min(limit, len(panel)),
        "repeats": repeats,
        "seed": seed,
        "sampling": asdict(sampling),
        "prompt_mode": prompter.mode,
        "history": prompter.history,
    }


def _starts(panel: Panel, seed: int, limit: int | None, repeats: int) -> Sequence[Start]:
    """Return every rollout; the first of each task has the same seed whatever the number of repeats."""
    tasks = [task.id for task in panel.tasks[:limit]]
    keys = [(task, [seed, i, *([repeat] * (repeat > 0))]) for i, task in enumerate(tasks) for repeat in range(repeats)]
    return [Start(task, task, int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])) for task, key in keys]
