"""``python -m agentbench_credit.eval``: success of (method, model) checkpoints on a suite, with intervals."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentbench_credit.command import parse, run_command

if TYPE_CHECKING:
    from agentbench_credit.benchmarks import Benchmark
    from agentbench_credit.env import Panel
    from agentbench_credit.policy.base import Sampling
    from agentbench_credit.policy.prompts import Prompter, PromptMode
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
    prompting: tuple[PromptMode, int],
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
        prompting: Mode and history of the prompts.
        parallel: Episodes under way at once.

    Returns:
        The result.

    Raises:
        ConfigError: The folder holds another evaluation.
        ModelError: Every rollout ended in an error.
    """
    from agentbench_credit.cache import atomic_write_text
    from agentbench_credit.env import ENVIRONMENTS
    from agentbench_credit.errors import ModelError
    from agentbench_credit.policy.prompts import Prompter
    from agentbench_credit.results import RESULT_VERSION, measure, versions
    from agentbench_credit.rollout import rollout
    from agentbench_credit.run_folder import claim
    from agentbench_credit.trajectory_io import TrajectoryLog

    environment = ENVIRONMENTS.get(benchmark.environment)
    panel = environment.load_panel(benchmark.preset, benchmark.split)
    prompter = Prompter(policy.tokenizer, *prompting)
    run = identity | _description(benchmark, panel, sampling, prompter, seed=seed, limit=limit)
    claim(folder, run, may_differ=("checkpoint", "tasks"))
    with TrajectoryLog(folder / "trajectories.jsonl") as log:
        wanted = _starts(panel, seed, limit)
        done = {trajectory.task_id: trajectory for trajectory in log.trajectories}
        starts = [start for start in wanted if start.task_id not in done]
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
    done |= {trajectory.task_id: trajectory for trajectory in fresh}
    played = [done[start.task_id] for start in wanted]
    if all(trajectory.state == "error" for trajectory in played):
        what = f"every rollout failed, the first with {played[0].error}"
        raise ModelError(what, where=str(folder), mend="mend the cause and remove this folder")
    metrics = measure(played)
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

    if config.checkpoint is not None and (len(config.method) != 1 or config.method == (BASE,)):
        mend = "evaluate them one by one; the untrained model has no checkpoint"
        raise ConfigError("--checkpoint goes with one trained method", where="--method", mend=mend)
    counts = {"limit": config.limit, "parallel": config.parallel, "updates": config.updates}
    for name, value in (counts | {"max_new_tokens": config.max_new_tokens, "seed": config.seed + 1}).items():
        if value is not None and value < 1:
            raise ConfigError("the number is too small", where=f"--{name.replace('_', '-')}")
    if not config.method or len(set(config.method)) < len(config.method):
        raise ConfigError("name each method once, and at least one", where="--method")
    methods = {name: None if name == BASE else METHODS.get(name) for name in config.method}
    model_folder(config.model)
    results = []
    for name, method in methods.items():
        policy, trained, prompting = _load(config, name)
        budget = 0 if name == BASE else config.updates
        identity = {"method": name, "model": config.model, "budget": budget}
        identity["reconstruction"] = bool(method and method.is_reconstruction)
        for benchmark in map(BENCHMARKS.get, SUITES[config.suite]):
            results.append(
                evaluate(
                    policy,
                    benchmark,
                    evaluation_folder(config.out, name, budget, config.seed, benchmark.name),
                    identity=identity | trained,
                    seed=config.seed,
                    limit=config.limit,
                    sampling=Sampling(temperature=config.temperature, max_new_tokens=_max_new_tokens(config)),
                    prompting=prompting,
                    parallel=config.parallel,
                )
            )
    return results


def _load(config: EvalConfig, method: str) -> tuple[TransformersPolicy, dict[str, Any], tuple[PromptMode, int]]:
    """Return a method's policy, how it was trained, and how it is prompted.

    `tiny` is trained first if it has no checkpoint. A checkpoint is prompted as its training prompted it.
    """
    from agentbench_credit.policy.models import TINY
    from agentbench_credit.policy.transformers import load_policy
    from agentbench_credit.run_folder import read_run
    from agentbench_credit.train import run_training

    checkpoint = config.checkpoint
    if checkpoint is None and method != BASE:
        training = _training(config, method)
        checkpoint = run_training(training) if config.model == TINY else _trained(training)
    source = config.model if checkpoint is None else str(checkpoint)
    policy = load_policy(source, device=config.device, policy_id=f"{config.model}/{method}")
    run = read_run(checkpoint.parent.parent) if checkpoint is not None else None
    number = "0" if checkpoint is None else checkpoint.name.removeprefix("update-")
    trained = {
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "updates": int(number) if number.isdecimal() else None,
        "weights": policy.fingerprint(),
        "dtype": str(policy.model.dtype),
    }
    return policy, trained, ("turn", 0) if run is None else (run["prompt_mode"], run["history"])


def _max_new_tokens(config: EvalConfig) -> int:
    from agentbench_credit.policy.models import TINY

    if config.max_new_tokens is not None:
        return config.max_new_tokens
    return 24 if config.model == TINY else 512


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
        out=training_folder(config.out, method, config.updates, config.seed),
        seed=config.seed,
        updates=config.updates,
        success_reward=10.0,
        max_new_tokens=_max_new_tokens(config),
        device=config.device,
    )


def _trained(training: TrainConfig) -> Path:
    """Return the last checkpoint of a training that the user has to run."""
    from agentbench_credit.errors import ConfigError, ModelError
    from agentbench_credit.run_folder import read_run
    from agentbench_credit.trainer import TRAINERS

    newest = TRAINERS.get(training.trainer).newest(training.out)
    command = f"python -m agentbench_credit.train {_options(training)}"
    if newest is None or int(newest.name.rpartition("-")[2]) < training.updates:
        found = "no checkpoint" if newest is None else f"only {newest.name}"
        what = f"{found} of {training.method} on {training.model} after {training.updates} updates"
        mend = f"train it with `{command}`, or point to one with --checkpoint"
        raise ModelError(what, where=str(training.out), mend=mend)
    run = read_run(training.out) or {}
    for name in ("method", "model", "env", "preset", "seed"):
        if run.get(name) != getattr(training, name):
            what = f"the checkpoint's {name} is {run.get(name)!r}, {getattr(training, name)!r} is asked"
            raise ConfigError(what, where=str(training.out), mend="give another --out or --checkpoint")
    return newest


def _options(training: TrainConfig) -> str:
    """Return the command-line options that differ from the defaults."""
    pairs = [(field.name, getattr(training, field.name)) for field in fields(training)]
    changed = [(name, value) for name, value in pairs if value != getattr(type(training)(), name) or name == "method"]
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in changed)


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    config = parse(EvalConfig, argv)
    from rich.console import Console

    from agentbench_credit.report.page import write_report
    from agentbench_credit.results import table

    results = run_evaluation(config)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table(results, narrow=console.width < 115))
    print(f"report: {write_report(config.out, results)}")


if __name__ == "__main__":
    run_command(main)
