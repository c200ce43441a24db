"""Do the compiled and the real engine say the same? ``python -m agentbench_credit.envs.alfworld.compare``."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from agentbench_credit.command import parse, progress, run_command
from agentbench_credit.envs.alfworld.compiled import CompiledEngine
from agentbench_credit.envs.alfworld.engine import Engine, Reply
from agentbench_credit.envs.alfworld.games import game_file, load_panel
from agentbench_credit.envs.alfworld.textworld_engine import TextWorldEngine
from agentbench_credit.errors import AgentBenchError

NONSENSE = ("", "dance", "GO TO fridge 1", "open fridge", "take apple 1 from", "put apple 1 in/on fridge 1", "look ")
"""Commands of which few are ever understood."""


@dataclass(frozen=True)
class CompareConfig:
    """Play games in both engines and compare every text, command, fact and whether the game is won."""

    preset: str = "full"
    """Preset whose games are played."""
    split: str = "test"
    """Split whose games are played."""
    games: int = 50
    """Number of games, evenly spread over the panel."""
    steps: int = 100
    """Random commands a game, besides a shortest plan."""
    seed: int = 0
    """Seed of the random commands."""


def differences(one: Reply, other: Reply) -> str:
    """Return which parts of two replies differ and how, empty if none does."""
    found = []
    for field in fields(Reply):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if left != right:
            if isinstance(left, frozenset):
                left, right = sorted(left - right), sorted(right - left)
            found.append(f"{field.name} {left!r} against {right!r}")
    return "; ".join(found)


def compare(path: Path, engines: tuple[Engine, Engine], commands: Iterator[str] | Sequence[str]) -> str:
    """Start a game in two engines and carry out commands in both.

    Args:
        path: The game.
        engines: The engines.
        commands: Taken one by one, after the reply to the one before has been compared.

    Returns:
        The first difference and where it is, empty if there is none.
    """
    one, other = engines
    if found := differences(one.start(path), other.start(path)):
        return f"at the start: {found}"
    for number, command in enumerate(commands, 1):
        if found := differences(one.act(command), other.act(command)):
            return f"after {number} commands, the last {command!r}: {found}"
    return ""


def random_commands(engine: CompiledEngine, steps: int, rng: random.Random) -> Iterator[str]:
    """Yield random commands for the state that an engine is in; half of them do more than go somewhere.

    Args:
        engine: Its game has begun when the first command is taken.
        steps: Number of commands.
        rng: The source of randomness.

    Yields:
        Commands, one in twenty of them nonsense.
    """
    for _ in range(steps):
        admissible = engine.game.node(engine.state).admissible
        doing = [command for command in admissible if not command.startswith("go to ")]
        chance = rng.random()
        yield rng.choice(NONSENSE if chance < 0.05 else doing if chance < 0.55 else admissible)


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.

    Raises:
        AgentBenchError: The engines differ.
    """
    config = parse(CompareConfig, argv)
    panel = load_panel(config.preset, config.split)
    tasks = panel.tasks[:: max(1, len(panel) // config.games)][: config.games]
    compiled, real = CompiledEngine(), TextWorldEngine()
    count = 0
    try:
        with progress(f"compare engines on {panel}", len(tasks)) as bar:
            for task in tasks:
                path, rng = game_file(panel, task), random.Random(f"{config.seed}/{task.id}")
                compiled.start(path)
                plan = compiled.plan()
                for commands in (plan, random_commands(compiled, config.steps, rng)):
                    if found := compare(path, (compiled, real), commands):
                        raise AgentBenchError(f"the compiled and the real engine differ {found}", where=task.id)
                count += len(plan) + config.steps
                bar.advance()
    finally:
        real.close()
    print(f"{panel}: {len(tasks)} games, {count} commands, no difference")


if __name__ == "__main__":
    run_command(main)
