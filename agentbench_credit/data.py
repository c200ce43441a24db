"""``python -m agentbench_credit.data``: what environments play, and making it before it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from agentbench_credit.command import parse, progress, run_command

if TYPE_CHECKING:
    from agentbench_credit.env import Environment


@dataclass(frozen=True)
class DataConfig:
    """List the panels of environments, or make what they play now instead of on first use."""

    action: Annotated[Literal["list", "build"], tyro.conf.Positional] = "list"
    """`list` names environments, presets and splits; `build` makes all panels and starts every task once."""
    environments: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of environments, all by default for `list`."""
    preset: str | None = None
    """Only this preset."""


def build(environment: Environment, preset: str) -> None:
    """Make a preset's panels and start each of their tasks, so that all that is cached is there.

    Args:
        environment: The registry entry.
        preset: One of its presets.
    """
    for split in environment.splits:
        env = environment.make(preset=preset, split=split)
        try:
            with progress(f"build {environment.name} {preset}/{split}", len(env.panel)) as bar:
                for task in env.panel:
                    env.reset(options={"task": task.id})
                    bar.advance()
        finally:
            env.close()
        print(f"{environment.name} {preset}/{split}: {len(env.panel)} tasks of {env.panel}, {env.panel.sha256}")


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.

    Raises:
        ConfigError: No environment is named, or it has no such preset.
    """
    config = parse(DataConfig, argv)
    from agentbench_credit.env import ENVIRONMENTS
    from agentbench_credit.errors import ConfigError

    if config.action == "build" and not config.environments:
        mend = f"name one or more of {', '.join(ENVIRONMENTS.names())}"
        raise ConfigError("no environment to build", where="build", mend=mend)
    for name in config.environments or tuple(ENVIRONMENTS.names()):
        environment = ENVIRONMENTS.get(name)
        if config.preset not in (None, *environment.presets):
            known = ", ".join(environment.presets)
            raise ConfigError(f"no preset {config.preset!r}", where=environment.name, mend=f"known: {known}")
        presets = environment.presets if config.preset is None else (config.preset,)
        if config.action == "list":
            print(f"{environment.name}: presets {', '.join(presets)}; splits {', '.join(environment.splits)}")
            continue
        for preset in presets:
            build(environment, preset)


if __name__ == "__main__":
    run_command(main)
