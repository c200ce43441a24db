"""``python -m agentbench_credit.bench``: the speed of everything that has a ``bench`` module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentbench_credit.command import parse, run_command

NAME, SUFFIX = "bench", "_bench"
"""Modules that are looked for: ``bench`` measures the folder it lies in, ``part_bench`` the module ``part`` beside it.
Each has a function ``bench() -> dict[str, float]``, measure by name."""


@dataclass(frozen=True)
class BenchConfig:
    """Measure the speed of credit methods and environments on this machine, and print the table."""

    only: tuple[str, ...] = ()
    """Parts to measure, such as `credit` or `envs.sokoban`; all by default."""


def find_benches(paths: Sequence[str], prefix: str) -> dict[str, str]:
    """Return the benchmark modules of a package and of the folders in it, importing none.

    Args:
        paths: The package's ``__path__``.
        prefix: The package's name.

    Returns:
        Module names by the part that each measures, such as ``signals`` and ``envs.sokoban``.
    """
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(paths):
        if module.ispkg:
            inside = [str(Path(path) / module.name) for path in paths]
            deeper = find_benches(inside, f"{prefix}.{module.name}")
            found |= {f"{module.name}.{part}".strip("."): name for part, name in deeper.items()}
        elif module.name == NAME or module.name.endswith(SUFFIX):
            found[module.name.removesuffix(NAME).removesuffix("_")] = f"{prefix}.{module.name}"
    return found


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.

    Raises:
        ConfigError: ``--only`` names a part that has no benchmark.
        AgentBenchError: ``--only`` names a part that cannot run here.
    """
    config = parse(BenchConfig, argv)
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    import agentbench_credit
    from agentbench_credit.errors import AgentBenchError, ConfigError

    benches = find_benches(agentbench_credit.__path__, agentbench_credit.__name__)
    del benches[""]  # this module
    for part in config.only:
        if part not in benches:
            raise ConfigError(f"no benchmark {part!r}", where="--only", mend=f"known: {', '.join(benches)}")
    table = Table("part", "measure", title="speed on this machine")
    table.add_column("value", justify="right")
    console = Console()
    for part, module in benches.items():
        if config.only and part not in config.only:
            continue
        console.print(f"measuring {part} …", style="dim")
        try:
            measures = importlib.import_module(module).bench()
        except AgentBenchError as error:  # such as an optional component that is not installed
            if config.only:
                raise
            console.print(Text(f"{part} is left out: {error}", style="yellow"))
            continue
        for measure, value in measures.items():
            table.add_row(part, measure, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}")
    console.print(table)


if __name__ == "__main__":
    run_command(main)
