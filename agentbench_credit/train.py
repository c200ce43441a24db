"""``python -m agentbench_credit.train``: train a model in an environment with a credit method."""

from __future__ import annotations

import ast
import inspect
import sys
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentbench_credit.command import parse, run_command

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentbench_credit.credit.method import CreditMethod

SMALL_MODEL = 100_000_000
"""Models with fewer parameters learn with `SMALL_MODEL_LR` unless told otherwise."""
SMALL_MODEL_LR = 1e-4
PUBLISHED_LR = 1e-6
"""What the papers use for models of 1.5 to 8 billion parameters."""


@dataclass(frozen=True)
class TrainConfig:
    """Train a model in an environment with a credit method.

    The same command goes on where it was stopped; on the same machine, with the same number of threads, it ends with
    the same weights as if it had not been. Weights and arithmetic are float32, on a GPU too.
    """

    method: str = "gear"
    """Credit method."""
    params: tuple[str, ...] = ()
    """Parameters of the credit method as name=value, such as epsilon=0.3; others keep their defaults."""
    model: str = "tiny"
    """tiny, a known name such as Qwen3-4B, a local folder, or a hub id."""
    env: str = "sokoban"
    """Environment."""
    preset: str = ""
    """Preset of the environment; empty takes its first."""
    trainer: str = "local"
    """Trainer."""
    out: Path = Path("runs/train")
    """Folder for checkpoints and logs."""
    seed: int = 0
    """Seed of task order and sampling."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs."""

    updates: int = 50
    """Updates in all; a finished run may be prolonged unless the method has a schedule over the updates."""
    tasks_per_update: int = 16
    """Tasks of an update, one group each."""
    group_size: int = 8
    """Rollouts of each task."""
    temperature: float = 1.0
    """Sampling temperature."""
    max_new_tokens: int = 32
    """Longest response of one turn."""
    prompt_mode: Literal["turn", "conversation"] = "turn"
    """A new prompt in each turn, or one growing conversation."""
    history: int = 0
    """Earlier turns shown in the prompts of mode turn."""
    success_reward: float | None = None
    """Reward of a success in place of the environment's rewards, 10 in the papers' ALFWorld and WebShop; None keeps
    the environment's."""
    invalid_action_penalty: float = -0.1
    """What a turn costs whose action the environment refuses, as a negative number."""
    penalty_in_reward: bool = True
    """Whether that is part of the reward; if not, it is added to the turn's advantage, where it stays local."""
    parallel: int = 128
    """Episodes under way at once."""

    lr: float | None = None
    """Learning rate; None is 1e-4 for models below 100 million parameters and the published 1e-6 for others."""
    warmup_updates: int = 0
    """Updates over which the learning rate rises linearly."""
    max_grad_norm: float = 1.0
    """Longest gradient; a longer one is scaled down."""
    epochs: int = 1
    """Passes over the rollouts of an update."""
    minibatches: int = 1
    """Optimiser steps of one pass; each takes whole groups."""
    batch_tokens: int = 16384
    """Most tokens of a forward pass and of a micro-batch; changes memory and speed only."""
    ratio_tolerance: float = 1e-4
    """Largest difference between sampled and recomputed log-probabilities; beyond it the run stops."""

    ratio: Literal["token", "turn", "sequence"] | None = None
    """What an importance ratio belongs to; None takes the credit method's own."""
    clip_low: float = 0.2
    """How far the ratio may fall below 1."""
    clip_high: float = 0.2
    """How far the ratio may rise above 1."""
    dual_clip: float | None = 3.0
    """Bound on the ratio where the advantage is negative; None for no bound."""
    loss_aggregation: Literal["token-mean", "sequence-mean", "constant"] = "token-mean"
    """How token losses become one number."""
    kl_coefficient: float = 0.01
    """Weight of the divergence from the initial model; 0 leaves it out."""

    references: Literal["own", "shuffled"] = "own"
    """What a teacher reads: the reference of the task, or, to see whether it matters, that of another task."""
    branches: int = 9
    """Fresh rollouts from every visited state, for vineppo."""
    critic_lr: float = 1e-5
    """Learning rate of the critic, for gae."""

    checkpoint_every: int = 10
    """Updates between checkpoints; the last two are kept."""


def run_training(config: TrainConfig) -> Path:
    """Train, going on from the newest checkpoint below ``config.out``.

    Args:
        config: What to train.

    Returns:
        Folder of the last checkpoint, which `load_policy` reads.

    Raises:
        ConfigError: A value is out of range, or the folder belongs to another run.
    """
    from agentbench_credit.credit import METHODS
    from agentbench_credit.env import ENVIRONMENTS
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.policy.base import Sampling
    from agentbench_credit.policy.prompts import Prompter
    from agentbench_credit.policy.transformers import load_policy
    from agentbench_credit.trainer import TRAINERS, Objective, Optimisation, RewardRule, SignalSources, TaskSchedule

    method, environment = METHODS.get(config.method), ENVIRONMENTS.get(config.env)
    params = parse_params(method, config.params)
    if config.parallel < 1:
        raise ConfigError(f"parallel is {config.parallel}", mend="use at least 1 episode")
    if config.minibatches > config.tasks_per_update:
        what = f"{config.minibatches} minibatches of {config.tasks_per_update} tasks"
        raise ConfigError(what, mend="use at most one mini-batch per task")
    if config.group_size == 1:
        warnings.warn("groups of one rollout: a method that compares siblings gives no credit", stacklevel=2)
    preset = config.preset or environment.presets[0]
    panel = environment.load_panel(preset, "train")
    schedule = TaskSchedule(panel, **_fields_of(TaskSchedule, config))
    rewards = RewardRule(**_fields_of(RewardRule, config))
    sources = SignalSources(**_fields_of(SignalSources, config))
    objective, sampling = Objective(**_fields_of(Objective, config)), Sampling(**_fields_of(Sampling, config))
    trainer = TRAINERS.get(config.trainer)
    policy = load_policy(config.model, device=config.device, dtype="float32")
    prompter = Prompter(policy.tokenizer, config.prompt_mode, config.history)
    config = replace(config, preset=preset, lr=_learning_rate(policy.model) if config.lr is None else config.lr)
    optimisation = Optimisation(**_fields_of(Optimisation, config))
    run = asdict(config) | {"params": params, "panel_sha256": panel.sha256, "weights": policy.fingerprint()}
    _claim(config.out, run, method)
    return trainer.train(
        policy,
        lambda: environment.make(preset=preset, split="train"),
        schedule,
        method,
        config.out,
        method_params=params,
        objective=objective,
        optimisation=optimisation,
        sampling=sampling,
        prompter=prompter,
        rewards=rewards,
        sources=sources,
        parallel=config.parallel,
        checkpoint_every=config.checkpoint_every,
    )


def parse_params(method: CreditMethod, texts: tuple[str, ...]) -> dict[str, Any]:
    """Read the parameters of a credit method.

    Args:
        method: The method.
        texts: ``name=value``, the value a Python literal, ``true``, ``false``, ``inf``, or plain text.

    Returns:
        Values by name.

    Raises:
        ConfigError: A text without ``=``, a name given twice, or what the method does not take.
    """
    from agentbench_credit.credit.params import check_params
    from agentbench_credit.errors import ConfigError

    params: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in params:
            raise ConfigError(
                f"cannot read the parameter {text!r}", where="--params", mend="give each once, as name=value"
            )
        params[name] = _value(value)
    check_params(method.name, method.function, method.params, params)
    return params


def _value(text: str) -> Any:
    if text in ("true", "false"):  # as the recipes spell them
        return text == "true"
    for read in (ast.literal_eval, float):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text


def _fields_of(kind: type[Any], config: TrainConfig) -> dict[str, Any]:
    """Return the values of the configuration's fields that a class takes under the same names."""
    taken = inspect.signature(kind).parameters
    return {name: value for name, value in asdict(config).items() if name in taken}


def _learning_rate(model: PreTrainedModel) -> float:
    small = sum(parameter.numel() for parameter in model.parameters()) < SMALL_MODEL
    return SMALL_MODEL_LR if small else PUBLISHED_LR


def _claim(out: Path, run: dict[str, Any], method: CreditMethod) -> None:
    """Make the folder this run's own, or check that it is.

    What changes memory, speed and checks only may differ, and a run may get more updates if no schedule depends on
    how many there are.
    """
    from agentbench_credit.run_folder import claim

    run = {name: value for name, value in run.items() if name != "out"}
    may_differ = ["checkpoint_every", "batch_tokens", "parallel", "device", "ratio_tolerance"]
    if _stored_updates(out) < run["updates"] and not method.scheduled:
        may_differ.append("updates")
    claim(out, run, may_differ=tuple(may_differ))


def _stored_updates(out: Path) -> int:
    """Return the updates that the folder's run was asked for; infinitely many where that cannot be told."""
    from agentbench_credit.run_folder import read_run

    run = read_run(out)
    return sys.maxsize if run is None else int(run["updates"])


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    checkpoint = run_training(parse(TrainConfig, argv))
    print(f"checkpoint: {checkpoint}")


if __name__ == "__main__":
    run_command(main)
