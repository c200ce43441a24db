"""``python -m agentbench_credit.eval``: success of (method, model) checkpoints on a suite, with intervals."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentbench_credit.command import parse, run_command
from agentbench_credit.policy.models import SCRIPTED, SERVER, TINY

if TYPE_CHECKING:
    from agentbench_credit.benchmarks import Benchmark
    from agentbench_credit.policy.base import Policy
    from agentbench_credit.policy.prompts import PromptMode
    from agentbench_credit.train import TrainConfig

BASE = "base"
"""The method name that stands for the untrained model."""


@dataclass(frozen=True)
class EvalConfig:
    """Evaluate (method, model) checkpoints on a suite and print the table.

    The same command goes on where it was stopped. With the embedded model `tiny`, a method without a checkpoint is
    trained first, for `updates` updates.
    """

    method: tuple[str, ...] = ()
    """Credit methods, each with a checkpoint of its own; `base` is the model as it is. gear by default for `tiny`, else
    base."""
    model: str = "tiny"
    """tiny, a known name such as Qwen3-4B, a local folder, a hub id, a server as openai:http://HOST:PORT/v1#NAME,
    scripted:expert (plays the reference) or scripted:random."""
    suite: str = "embedded"
    """embedded, agentic, math_tool, or a single benchmark such as aime24."""
    checkpoint: Path | None = None
    """Folder of a trained checkpoint, for a single method; by default the one trained below `out`."""
    out: Path = Path("runs/embedded")
    """Folder for checkpoints, trajectories, results and the report."""
    seed: int = 0
    """Seed of training and of evaluation."""
    limit: int | None = None
    """Play only the first tasks of each panel, this many."""
    k: int | None = None
    """Rollouts of each task; by default the benchmark's own number, such as 32 for AIME."""
    updates: int = 60
    """Training budget of a method without a checkpoint, in updates of 16 tasks × 8 rollouts."""
    temperature: float = 0.4
    """Sampling temperature of the evaluation (0.4 in the verl-agent family)."""
    max_new_tokens: int | None = None
    """Longest response of one turn; None is 24 for `tiny`, else the benchmark's own number, and at most half of the
    model's context."""
    parallel: int | None = None
    """Most episodes under way at once; None is the benchmark's own number."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs."""


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
    from agentbench_credit.benchmarks import find_benchmarks
    from agentbench_credit.credit import METHODS
    from agentbench_credit.evaluation import evaluate
    from agentbench_credit.policy.base import Sampling
    from agentbench_credit.run_folder import evaluation_folder

    names = config.method or (("gear",) if config.model == TINY else (BASE,))
    _check(config, names)
    benchmarks = find_benchmarks(config.suite)
    methods = {name: None if name == BASE else METHODS.get(name) for name in names}
    results = []
    for name, method in methods.items():
        policy, trained, prompting = _load(config, name, benchmarks[0])
        budget = 0 if name == BASE else config.updates
        identity = {"method": name, "model": config.model, "budget": budget}
        identity["reconstruction"] = bool(method and method.is_reconstruction)
        for benchmark in benchmarks:
            longest = min(_max_new_tokens(config, benchmark), policy.max_length // 2)
            results.append(
                evaluate(
                    policy,
                    benchmark,
                    evaluation_folder(config.out, name, budget, config.seed, benchmark.name),
                    identity=identity | trained,
                    seed=config.seed,
                    limit=config.limit,
                    repeats=config.k or benchmark.repeats,
                    sampling=Sampling(temperature=config.temperature, max_new_tokens=longest),
                    prompting=prompting if benchmark.prompt_mode == "turn" else ("conversation", 0),
                    parallel=config.parallel or benchmark.parallel,
                )
            )
    return results


def _check(config: EvalConfig, names: Sequence[str]) -> None:
    """Refuse options that contradict each other, and a model that is not there, before anything is trained."""
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.policy.models import model_folder

    if config.checkpoint is not None and (len(names) != 1 or tuple(names) == (BASE,)):
        mend = "evaluate them one by one; the untrained model has no checkpoint"
        raise ConfigError("--checkpoint goes with one trained method", where="--method", mend=mend)
    counts = {"limit": config.limit, "parallel": config.parallel, "updates": config.updates, "k": config.k}
    for name, value in (counts | {"max_new_tokens": config.max_new_tokens, "seed": config.seed + 1}).items():
        if value is not None and value < 1:
            least = 0 if name == "seed" else 1
            raise ConfigError("the number is too small", where=f"--{name.replace('_', '-')}", mend=f"at least {least}")
    if len(set(names)) < len(names):
        raise ConfigError("name each method once", where="--method")
    if not config.model.startswith((SERVER, SCRIPTED)):
        model_folder(config.model)
    elif tuple(names) != (BASE,):
        raise ConfigError(f"{config.model} is evaluated as it is", where="--method", mend=f"use --method {BASE}")


def _load(
    config: EvalConfig, method: str, benchmark: Benchmark
) -> tuple[Policy, dict[str, Any], tuple[PromptMode, int]]:
    """Return a method's policy, how it was trained, and how it is prompted.

    `tiny` is trained first if it has no checkpoint, on the benchmark's panel for training. A checkpoint is prompted as
    its training prompted it.
    """
    from agentbench_credit.policy.transformers import load_policy
    from agentbench_credit.run_folder import read_run
    from agentbench_credit.train import run_training

    if config.model.startswith((SERVER, SCRIPTED)):
        unknown = {"checkpoint": None, "updates": 0, "weights": None, "dtype": None}
        return _weightless(config.model), unknown, ("turn", 0)
    checkpoint = config.checkpoint
    if checkpoint is None and method != BASE:
        training = _training(config, method, benchmark)
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


def _weightless(model: str) -> Policy:
    """Return a policy without weights of ours."""
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.policy.bytes import byte_tokenizer
    from agentbench_credit.policy.scripted import SCRIPTS, ScriptedPolicy
    from agentbench_credit.policy.server import ServerPolicy

    if model.startswith(SERVER):
        return ServerPolicy(model)
    script = model.removeprefix(SCRIPTED)
    if script not in SCRIPTS:
        raise ConfigError(f"no script {script!r}", where="--model", mend=f"known: {', '.join(SCRIPTS)}")
    return ScriptedPolicy(SCRIPTS[script], byte_tokenizer(), model)


def _max_new_tokens(config: EvalConfig, benchmark: Benchmark) -> int:

    if config.max_new_tokens is not None:
        return config.max_new_tokens
    return 24 if config.model == TINY else benchmark.max_new_tokens


def _training(config: EvalConfig, method: str, benchmark: Benchmark) -> TrainConfig:
    """Return the training whose checkpoint is evaluated by default: on the train split of the benchmark's preset."""
    from agentbench_credit.run_folder import training_folder
    from agentbench_credit.train import TrainConfig

    return TrainConfig(
        method=method,
        model=config.model,
        env=benchmark.environment,
        preset=benchmark.preset,
        out=training_folder(config.out, method, config.updates, config.seed),
        seed=config.seed,
        updates=config.updates,
        success_reward=10.0,
        max_new_tokens=_max_new_tokens(config, benchmark),
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
    console.print(table(results, width=console.width))
    print(f"report: {write_report(config.out, results)}")


if __name__ == "__main__":
    run_command(main)
