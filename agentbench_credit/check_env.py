"""Is an environment right? Its contract, and whether its panel can be solved by the expert but not by chance."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from agentbench_credit.command import parse, printable, progress, run_command
from agentbench_credit.errors import ConfigError, EnvironmentContractError

if TYPE_CHECKING:
    from agentbench_credit.env import AgentEnv, Environment, Info, Task
    from agentbench_credit.env_probe import Finding

RANDOM_LIMIT = 0.2
"""Share of a panel's tasks that a random policy may solve."""


def find_problems(environment: Environment, preset: str | None = None) -> list[Finding]:
    """Hold an environment against the contract of `agentbench_credit.env`.

    It is built a few hundred times and played for some episodes, in this process and in another one.

    Args:
        environment: The registry entry.
        preset: Which of its presets, None for the first.

    Returns:
        What is wrong, the first case of each kind; empty if nothing is.
    """
    from agentbench_credit.env_checks import CHECKS, SETUP, run_check
    from agentbench_credit.env_probe import Probe

    preset = preset or environment.presets[0]
    probe = Probe(environment, preset, environment.splits_of(preset)[0])
    if all(run_check(check, probe) for check in SETUP):
        for check in CHECKS:
            run_check(check, probe)
    return list(probe.findings.values())


def check_env(environment: Environment, preset: str | None = None) -> None:
    """Do nothing if an environment keeps the contract, as `find_problems` sees it; for tests.

    Args:
        environment: The registry entry.
        preset: Which of its presets, None for the first.

    Raises:
        EnvironmentContractError: It does not; the message lists all findings.
    """
    if findings := find_problems(environment, preset):
        listed = "; ".join(map(str, findings))
        raise EnvironmentContractError(f"breaches of the contract ({len(findings)}): {listed}", where=environment.name)


@dataclass(frozen=True)
class Validation:
    """How the expert and a random policy did on a panel."""

    panel: str
    """Environment, preset and split."""
    tasks: int
    """Tasks played."""
    expert_failures: dict[str, str]
    """Tasks that the expert did not solve, and why."""
    random_successes: tuple[str, ...]
    """Tasks that the random policy solved."""

    @property
    def ok(self) -> bool:
        """Whether the expert solved every task, and chance at most the share `RANDOM_LIMIT` of them."""
        few = len(self.random_successes) <= RANDOM_LIMIT * self.tasks
        return self.tasks > 0 and not self.expert_failures and few

    def __str__(self) -> str:
        """Return the outcome and the tasks concerned, one a line."""
        solved, lucky = self.tasks - len(self.expert_failures), len(self.random_successes)
        lines = [
            f"{self.panel}: {'ok' if self.ok else 'NOT OK'}",
            f"  expert solves {solved} of {self.tasks} tasks",
            *(f"    {printable(task)}: {printable(reason)}" for task, reason in self.expert_failures.items()),
            f"  random actions solve {lucky} of {self.tasks} tasks, at most {RANDOM_LIMIT:.0%} are allowed",
        ]
        if lucky > RANDOM_LIMIT * self.tasks:
            lines.append(f"    {printable(', '.join(self.random_successes))}")
        return "\n".join(lines)


def validate(environment: Environment, preset: str, split: str, *, limit: int | None = None) -> Validation:
    """Play a panel with the environment's expert and with random actions.

    The expert must do what `reference` says at the start: its actions are found there in their order. The random
    policy draws uniformly from the admissible actions, or random letters where none are listed; its draws depend on
    the task's id only.

    Args:
        environment: The registry entry.
        preset: Name of the preset.
        split: Name of the split.
        limit: Play the first tasks only, None for all.

    Returns:
        The report.

    Raises:
        EnvironmentContractError: The environment raised an exception; the message names the task.
    """
    name = f"{environment.name} {preset}/{split}"
    failures: dict[str, str] = {}
    lucky: list[str] = []
    try:
        env = environment.make(preset=preset, split=split)
    except Exception as error:  # a broken constructor may raise anything
        raise EnvironmentContractError(f"cannot be built ({type(error).__name__}: {error})", where=name) from error
    tasks = env.panel.tasks[:limit]
    try:
        with progress(f"validate {name}", len(tasks)) as bar:
            for task in tasks:
                if reason := _play_expert(env, task):
                    failures[task.id] = reason
                if not _play(env, task, _random_actions(task)):
                    lucky.append(task.id)
                bar.advance()
    finally:
        env.close()
    return Validation(name, len(tasks), failures, tuple(lucky))


def _random_actions(task: Task) -> Callable[[Info], str]:
    rng = random.Random(task.id)

    def act(info: Info) -> str:
        actions = info["admissible_actions"]
        return rng.choice(actions) if actions else "".join(rng.choices(string.ascii_lowercase, k=8))

    return act


def _play_expert(env: AgentEnv, task: Task) -> str:
    """Play a task with the expert; return why it was not solved or is not what the reference says, else empty text."""
    actions: list[str | None] = []
    reference: list[str | None] = []

    def act(_: Info) -> str | None:
        if not actions:
            reference.append(env.reference())
        actions.append(env.expert_action())
        return actions[-1]

    if reason := _play(env, task, act):
        return reason
    if reference[0] is None:
        return "there is no reference at the start"
    at = 0
    for turn, action in enumerate(actions):
        found = reference[0].find(str(action), at)
        if found < 0:
            return f"the reference does not say what the expert did in turn {turn}"
        at = found + len(str(action))
    return ""


def _play(env: AgentEnv, task: Task, act: Callable[[Info], str | None]) -> str:
    """Play a task; return why it was not solved, empty text if it was."""
    from agentbench_credit.env_probe import MAX_TURNS

    try:
        _, info = env.reset(options={"task": task.id})
        for turn in range(MAX_TURNS):
            action = act(info)
            if action is None:
                return f"no action after {turn} turns"
            _, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                return "" if info["success"] else f"not solved when it ended after {turn + 1} turns"
    except Exception as error:
        what = f"an episode raised {type(error).__name__}: {error}"
        raise EnvironmentContractError(what, where=task.id, mend="run check_env first") from error
    return f"not over after {MAX_TURNS} turns"


@dataclass(frozen=True)
class CheckConfig:
    """Check an environment against the contract, and validate a panel with its expert and with random actions."""

    environment: Annotated[str, tyro.conf.Positional] = "sokoban"
    """A registered environment, or module:OBJECT for an Environment that is not registered."""
    preset: str | None = None
    """Which preset; the environment's first by default."""
    split: str = "test"
    """Split to validate."""
    limit: int | None = None
    """Validate this many tasks only."""


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: The arguments, None for those of the process.

    Raises:
        ConfigError: The environment has no such preset or split, or no task is asked for.
        EnvironmentContractError: The environment or the panel is not as it should be.
    """
    config = parse(CheckConfig, argv)
    from agentbench_credit.env import ENVIRONMENTS

    if ":" in config.environment:
        ENVIRONMENTS.register(config.environment, config.environment)
    if config.limit is not None and config.limit < 1:
        raise ConfigError(f"limit is {config.limit}", where="--limit", mend="use at least 1 task")
    environment = ENVIRONMENTS.get(config.environment)
    preset = config.preset or environment.presets[0]
    for kind, name, known in (
        ("preset", preset, environment.presets),
        ("split", config.split, environment.splits_of(preset)),
    ):
        if name not in known:
            raise ConfigError(f"no {kind} {name!r}", where=environment.name, mend=f"known: {', '.join(known)}")
    findings = find_problems(environment, preset)
    for finding in findings:
        print(finding)
    print(f"{environment.name} {preset}: breaches of the contract: {len(findings) or 'none'}")
    report = validate(environment, preset, config.split, limit=config.limit)
    print(report)
    if findings or not report.ok:
        raise EnvironmentContractError(
            "the environment is not as it should be", where=environment.name, mend="see above"
        )


if __name__ == "__main__":
    run_command(main)
