"""``python -m agentbench_credit.eval``: success of (method, model) checkpoints on a suite, with intervals."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentbench_credit.command import parse, run_command

if TYPE_CHECKING:
    from agentbench_credit.benchmarks import Benchmark
    from agentbench_credit.env import Panel
    from agentbench_credit.policy.base import Sampling
    from agentbench_credit.policy.prompts import Prompter
    from agentbench_credit.policy.transformers import TransformersPolicy
    from agentbench_credit.rollout import Start
    from agentbench_credit.train import TrainConfig

BASE = "base"
"""The method name that stands for the untrained model."""


@dataclass(frozen=True)
class EvalConfig:
    """Evaluate (method, model) checkpoints on a suite and print the table.

    Every task of each panel is played once; the same command goes on where it was stopped. With the embedded model
    `tiny`, a method without a checkpoint is trained first, for `updates` updates.
    """

    method: tuple[str, ...] = ("gear",)
    """Credit methods, each with a checkpoint of its own; `base` is the untrained model."""
    model: str = "tiny"
    """tiny, a known name such as Qwen3-4B, a local folder, or a hub id."""
    suite: Literal["embedded"] = "embedded"
    """Suite of benchmarks."""
    checkpoint: Path | None = None
    """Folder of a trained checkpoint, for a single method; by default the one trained below `out`."""
    out: Path = Path("runs/embedded")
    """Folder for checkpoints, trajectories, results and the report."""
    seed: int = 0
    """Seed of training and of evaluation."""
    limit: int | None = None
    """Play only the first tasks of each panel, this many."""
    updates: int = 60
    """Training budget of a method without a checkpoint, in updates of 16 tasks × 8 rollouts."""
    temperature: float = 0.4
    """Sampling temperature of the evaluation (0.4 in the verl-agent family)."""
    max_new_tokens: int | None = None
    """Longest response of one turn; None is 24 for `tiny` and the published 512 for other models."""
    parallel: int = 128
    """Episodes under way at once."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs."""


def evaluate(
    policy: TransformersPolicy,
    benchmark: Benchmark,
    folder: Path,
    *,
    identity: dict[str, Any],
    seed: int,
    limit: int | None,
    sampling: Sampling,
    parallel: int,
) -> dict[str, Any]:
    """Play a benchmark's tasks that the folder does not hold yet, and write ``result.json``.

    Args:
        policy: The policy to evaluate.
        benchmark: What to play.
        folder: Holds ``trajectories.jsonl``, written task by task, ``run.json`` and ``result.json``.
        identity: Method, model and checkpoint, stored with the result.
        seed: Seed of the sampling; a task's seed depends on it and the task only.
        limit: First tasks to play, None for all.
        sampling: How tokens are drawn.
        parallel: Episodes under way at once.

    Returns:
        The result.

    Raises:
        ConfigError: The folder holds another evaluation.
    """
    from agentbench_credit.cache import atomic_write_text
    from agentbench_credit.env import ENVIRONMENTS
    from agentbench_credit.policy.prompts import Prompter
    from agentbench_credit.results import RESULT_VERSION, measure, versions
    from agentbench_credit.rollout import rollout
    from agentbench_credit.run_folder import claim
    from agentbench_credit.trajectory_io import TrajectoryLog

    environment = ENVIRONMENTS.get(benchmark.environment)
    panel = environment.load_panel(benchmark.preset, benchmark.split)
    prompter = Prompter(policy.tokenizer)
    run = identity | _description(benchmark, panel, sampling, prompter, seed=seed, limit=limit)
    claim(folder, run, may_differ=("checkpoint",))
    with TrajectoryLog(folder / "trajectories.jsonl") as log:
        done = {trajectory.task_id for trajectory in log.trajectories}
        starts = [start for start in _starts(panel, seed, limit) if start.task_id not in done]
        fresh = rollout(
            policy,
            lambda: environment.make(preset=benchmark.preset, split=benchmark.split, **benchmark.env_kwargs),
            starts,
            prompter=prompter,
            sampling=sampling,
            parallel=parallel,
            on_finished=lambda _, trajectory: log.append(trajectory),
            label=f"evaluate {identity['method']} on {benchmark.name}",
        )
        metrics = measure([*log.trajectories, *fresh])
    result = {"result_version": RESULT_VERSION, **run, "versions": versions(), "metrics": asdict(metrics)}
    atomic_write_text(folder / "result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def _description(
    benchmark: Benchmark, panel: Panel, sampling: Sampling, prompter: Prompter, *, seed: int, limit: int | None
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
        "seed": seed,
        "sampling": asdict(sampling),
        "prompt_mode": prompter.mode,
        "history": prompter.history,
    }


def _starts(panel: Panel, seed: int, limit: int | None) -> list[Start]:
    import numpy as np

    from agentbench_credit.rollout import Start

    tasks = panel.tasks[:limit]
    seeds = [int(np.random.SeedSequence([seed, i]).generate_state(1, np.uint64)[0]) for i in range(len(tasks))]
    return [Start(task.id, task.id, task_seed) for task, task_seed in zip(tasks, seeds, strict=True)]


def run_evaluation(config: EvalConfig) -> list[dict[str, Any]]:
    """Evaluate every method of a configuration on every benchmark of its suite.

    Args:
        config: What to evaluate.

    Returns:
        The results, benchmark by benchmark within each method.

    Raises:
        ConfigError: The configuration contradicts itself or the folder.
        ModelError: The model or a checkpoint is missing.
    """
    from agentbench_credit.benchmarks import BENCHMARKS, SUITES
    from agentbench_credit.credit import METHODS
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.policy.base import Sampling
    from agentbench_credit.policy.models import model_folder
    from agentbench_credit.run_folder import evaluation_folder

    if config.checkpoint is not None and len(config.method) != 1:
        raise ConfigError("--checkpoint goes with one method", where="--method", mend="evaluate them one by one")
    if not config.method or len(set(config.method)) < len(config.method):
        raise ConfigError("name each method once, and at least one", where="--method")
    methods = {name: None if name == BASE else METHODS.get(name) for name in config.method}
    model_folder(config.model)
    results = []
    for name, method in methods.items():
        policy, trained = _load(config, name)
        identity = {"method": name, "model": config.model, "reconstruction": bool(method and method.is_reconstruction)}
        for benchmark in map(BENCHMARKS.get, SUITES[config.suite]):
            results.append(
                evaluate(
                    policy,
                    benchmark,
                    evaluation_folder(config.out, name, config.seed, benchmark.name),
                    identity=identity | trained,
                    seed=config.seed,
                    limit=config.limit,
                    sampling=Sampling(temperature=config.temperature, max_new_tokens=_max_new_tokens(config)),
                    parallel=config.parallel,
                )
            )
    return results


def _load(config: EvalConfig, method: str) -> tuple[TransformersPolicy, dict[str, Any]]:
    """Return a method's policy, training it first if it is `tiny` and has no checkpoint, and how it was trained."""
    from agentbench_credit.policy.models import TINY
    from agentbench_credit.policy.transformers import load_policy
    from agentbench_credit.train import run_training

    checkpoint, updates = config.checkpoint, 0 if method == BASE else None
    if checkpoint is None and method != BASE:
        training = _training(config, method)
        checkpoint = run_training(training) if config.model == TINY else _trained(training)
        updates = int(checkpoint.name.rpartition("-")[2])
    source = config.model if checkpoint is None else str(checkpoint)
    policy = load_policy(source, device=config.device, policy_id=f"{config.model}/{method}")
    trained = {
        "checkpoint": str(checkpoint) if checkpoint else None,
        "updates": updates,
        "weights": policy.fingerprint(),
    }
    return policy, trained


def _max_new_tokens(config: EvalConfig) -> int:
    from agentbench_credit.policy.models import TINY

    return config.max_new_tokens or (24 if config.model == TINY else 512)


def _training(config: EvalConfig, method: str) -> TrainConfig:
    """Return the training whose checkpoint is evaluated by default: on the train split of the suite's first panel."""
    from agentbench_credit.benchmarks import BENCHMARKS, SUITES
    from agentbench_credit.run_folder import training_folder
    from agentbench_credit.train import TrainConfig

    benchmark = BENCHMARKS.get(SUITES[config.suite][0])
    return TrainConfig(
        method=method,
        model=config.model,
        env=benchmark.environment,
        preset=benchmark.preset,
        out=training_folder(config.out, method, config.seed),
        seed=config.seed,
        updates=config.updates,
        success_reward=10.0,
        max_new_tokens=_max_new_tokens(config),
        device=config.device,
    )


def _trained(training: TrainConfig) -> Path:
    """Return the newest checkpoint of a training that the user has to run."""
    from agentbench_credit.errors import ModelError
    from agentbench_credit.trainer import TRAINERS

    newest = TRAINERS.get(training.trainer).newest(training.out)
    if newest is None:
        options = ("method", "model", "env", "preset", "updates", "max_new_tokens", "seed", "out")
        given = " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(getattr(training, name)))}" for name in options)
        mend = f"train it with `python -m agentbench_credit.train {given}`, or point to one with --checkpoint"
        raise ModelError(f"no checkpoint of {training.method} on {training.model}", where=str(training.out), mend=mend)
    return newest


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    config = parse(EvalConfig, argv)
    from rich.console import Console

    from agentbench_credit.report.page import write_report
    from agentbench_credit.results import table

    results = run_evaluation(config)
    Console(width=None if sys.stdout.isatty() else 130).print(table(results))
    print(f"report: {write_report(config.out, results)}")


if __name__ == "__main__":
    run_command(main)
