"""``python -m agentbench_credit.credit``: list the credit methods, show a page, run methods over a trajectory file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from agentbench_credit.command import parse, printable, run_command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentbench_credit.credit.method import Credit, CreditMethod
    from agentbench_credit.trajectory import Trajectory

EVERYWHERE = ("reconstruction", "rollouts", "excluded_rollouts", "groups", "group_size_min", "group_size_max")
"""Diagnostics that say the same of every method, but for the first."""


@dataclass(frozen=True)
class CreditConfig:
    """List the credit methods, show one's page, or run methods over a trajectory file and print their diagnostics.

    Examples: `list`, `show gear`, `check runs/train/checkpoints/update-000010/rollouts.parquet --model tiny`.
    """

    do: Annotated[Literal["list", "show", "check"], tyro.conf.Positional] = "list"
    """What to do."""
    target: Annotated[str, tyro.conf.Positional] = ""
    """Method of `show`; trajectory file (.parquet or .jsonl) of `check`."""
    method: tuple[str, ...] = ()
    """Methods that `check` runs; all by default."""
    model: str = ""
    """Model that computes the token signals for `check`; without it, methods that read signals are left out."""
    invalid_action_penalty: float = 0.0
    """Added by `check` to the reward of a turn whose action was refused."""


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.

    Raises:
        ConfigError: `show` or `check` without its target.
    """
    config = parse(CreditConfig, argv)
    from rich.console import Console

    from agentbench_credit.errors import ConfigError

    if config.do != "list" and not config.target:
        mend = "name a method, such as show gear" if config.do == "show" else "name a .parquet or .jsonl file"
        raise ConfigError(f"{config.do} what?", mend=mend)
    Console().print(_answer(config))


def _answer(config: CreditConfig) -> RenderableType:
    if config.do == "list":
        return method_table()
    return page(config.target) if config.do == "show" else check(config)


def method_table() -> RenderableType:
    """Return all registered methods as a table: what they read, how far their formula is known, when to use them."""
    from rich.table import Table
    from rich.text import Text

    from agentbench_credit.credit import METHODS

    table = Table(title="credit methods")
    for column in ("method", "paper", "evidence", "reads"):
        table.add_column(column, no_wrap=column == "method")
    table.add_column("use this when", ratio=1)
    for name in METHODS.names():
        method = METHODS.get(name)
        evidence = f"{method.evidence} ¹" if method.is_reconstruction else method.evidence
        reads = ", ".join(method.signals_for({})) or "rewards"
        table.add_row(*(Text(printable(cell)) for cell in (name, method.paper, evidence, reads, method.summary)))
    table.caption = "¹ a reconstruction: only the paper's abstract is public, the numbers inside are ours"
    return table


def page(name: str) -> RenderableType:
    """Return the page of a method.

    Args:
        name: Registry name.

    Returns:
        The page; for a method without one, the docstring of its function.
    """
    import inspect
    from importlib.resources import files

    from rich.text import Text

    from agentbench_credit.credit import METHODS

    method = METHODS.get(name)
    file = files("agentbench_credit.credit") / "pages" / f"{method.name}.md"
    own = METHODS.origin(name).startswith("agentbench_credit.credit.")
    return Text(file.read_text("utf-8") if own else inspect.getdoc(method.function) or method.summary)


def check(config: CreditConfig) -> RenderableType:
    """Run methods over a trajectory file.

    Args:
        config: File, methods and model.

    Returns:
        What all have in common, and a table of each method's advantages and own diagnostics.

    Raises:
        ConfigError: The file holds no rollout, or not one method could run.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from agentbench_credit.batch import CreditBatch
    from agentbench_credit.credit import METHODS
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.trajectory_io import read_trajectories

    trajectories = read_trajectories(Path(config.target))
    if not trajectories:
        raise ConfigError("no rollouts", where=config.target)
    methods = [METHODS.get(name) for name in config.method or METHODS.names()]
    batch = CreditBatch.from_trajectories(
        trajectories,
        signals=_signals(config.model, methods, trajectories) if config.model else {},
        invalid_action_penalty=config.invalid_action_penalty,
    )
    table = Table(title=f"credit over {printable(config.target)}")
    for column in ("method", "level", "mean |A|", "A ≠ 0 %"):
        table.add_column(column, justify="right" if "A" in column else "left", no_wrap=True)
    table.add_column("diagnostics", ratio=1)
    common: dict[str, Any] = {}
    for method in methods:
        missing = [name for name in method.signals_for({}) if name not in batch.signals]
        if missing:
            table.add_row(method.name, "", "", "", Text(f"not run: reads {', '.join(missing)}", style="dim"))
            continue
        credit = method(batch)
        common = {name: credit.diagnostics[name] for name in EVERYWHERE[1:]}
        table.add_row(*_row(method, credit, batch))
    if not common:
        raise ConfigError("no method could run", where=config.target, mend="name the --model that sampled the rollouts")
    head = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in common.items())
    return Group(table, Text(head), *(Text(note, style="yellow") for note in _notes(methods, batch, common)))


def _notes(methods: list[CreditMethod], batch: Any, common: dict[str, Any]) -> list[str]:
    """Return what makes the table say less than it seems to."""
    notes = []
    if common["group_size_max"] < 2:
        notes.append("no group has two rollouts: methods that compare siblings give no credit")
    taught = [method.name for method in methods if method.teacher != "none"]
    if taught and not batch.signals["taught"].any():
        what = "no turn was stored with a teacher's prompt, as training of these methods stores them"
        notes.append(f"{what}: for {', '.join(taught)} the teacher sees what the student sees")
    return notes


def _signals(model: str, methods: list[CreditMethod], trajectories: list[Trajectory]) -> dict[str, Any]:
    """Compute the token signals that the methods read, at the temperature of the rollouts."""
    from agentbench_credit.batch import SIGNAL_LEVELS
    from agentbench_credit.errors import ConfigError
    from agentbench_credit.policy.transformers import load_policy
    from agentbench_credit.signals import compute_signals

    needed = {name for method in methods for name in method.signals_for({})} - SIGNAL_LEVELS.keys()
    temperatures = {trajectory.sampling.get("temperature") for trajectory in trajectories}
    temperature = temperatures.pop()
    if temperatures or not isinstance(temperature, (int, float)) or not temperature > 0:
        what = "the rollouts were not all sampled at one temperature above 0"
        raise ConfigError(what, where="--model", mend="leave --model out, or give rollouts of a training")
    policy = load_policy(model, dtype="float32")
    return dict(compute_signals(policy.model, trajectories, needed, temperature=temperature, batch_tokens=16384))


def _row(method: CreditMethod, credit: Credit, batch: Any) -> list[str]:
    import numpy as np

    values = credit.per_token(batch) if credit.level == "token" else credit.values
    own = {name: value for name, value in credit.diagnostics.items() if name not in EVERYWHERE}
    if credit.distillation is not None:
        own["loss"] = "distillation, no advantage"
    text = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in own.items()
    )
    size = f"{np.abs(values).mean():.3f}" if values.size else "–"
    share = f"{100 * np.mean(values != 0):.1f}" if values.size else "–"
    mark = " ¹" if method.is_reconstruction else ""
    return [method.name + mark, credit.level, size, share, printable(text)]


if __name__ == "__main__":
    run_command(main)
