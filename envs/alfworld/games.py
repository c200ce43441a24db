"""The embedded panels: specifications ship with the package, and each becomes the same game file on every machine."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from agentbench_credit.cache import atomic_file, cache_dir
from agentbench_credit.env import Panel, Task
from agentbench_credit.envs.alfworld import official
from agentbench_credit.envs.alfworld.engine import GameFileError
from agentbench_credit.envs.alfworld.generate import Spec, game_text
from agentbench_credit.envs.alfworld.presets import check_preset
from agentbench_credit.errors import EnvironmentContractError

SPLITS = ("train", "validation", "test")
"""The last has floor plans that the others lack."""


@cache
def shipped() -> dict[str, Any]:
    """Return version and specifications, which ship with the package."""
    text = resources.files(__package__).joinpath("games.json").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel.

    Args:
        preset: A name in `presets.PRESETS`.
        split: One of `SPLITS`.

    Returns:
        The panel, called ``official``, ``embedded-full`` or ``embedded-small``.

    Raises:
        EnvironmentContractError: Unknown preset or split.
    """
    check_preset(preset)
    if split not in SPLITS:
        raise EnvironmentContractError(f"no split {split!r}", where="alfworld", mend=f"known: {', '.join(SPLITS)}")
    if preset == "standard" and (folder := official.data_folder()) is not None:
        return _official(folder, split)
    return _embedded("small" if preset == "small" else "full", split)


@cache
def _official(folder: Path, split: str) -> Panel:
    return official.load_panel(folder, split)


@cache
def _embedded(size: str, split: str) -> Panel:
    tasks = (
        Task(f"{size}-{split}-{index:04d}", json.dumps(row)) for index, row in enumerate(shipped()[f"{size}/{split}"])
    )
    return Panel(f"embedded-{size}", split, shipped()["version"], tuple(tasks))


def game_file(panel: Panel, task: Task) -> Path:
    """Return a task's ``game.tw-pddl``; a generated one is made when it is first asked for, in a few milliseconds.

    Args:
        panel: The panel.
        task: One of its tasks.

    Returns:
        The file, whose hash has been checked.

    Raises:
        EnvironmentContractError: This machine would play another game than the published one.
        GameFileError: The file cannot be read or written.
    """
    try:
        if panel.name == official.NAME:
            return official.game_file(task)
        return _expanded(task.data)
    except OSError as error:
        what, mend = f"the game cannot be read or written ({error})", "set AGENTBENCH_CACHE to a folder of your own"
        raise GameFileError(what, where=f"{panel}, {task.id}", mend=mend) from error


def walkthrough(task: Task) -> tuple[str, ...]:
    """Return the commands that fast-downward planned for a generated game.

    Args:
        task: A task of an embedded panel.

    Returns:
        The commands.
    """
    return tuple(json.loads(task.data)[6].split("; "))


def _expanded(data: str) -> Path:
    try:
        *fields, commands, sha256 = json.loads(data)
        spec = Spec(*fields)
    except (ValueError, TypeError, RecursionError) as error:
        mend = "play a part of one of ALFWorld's panels"
        raise EnvironmentContractError(f"a task is no specification of a game ({error})", mend=mend) from error
    path = cache_dir() / "alfworld" / "games" / f"{sha256}.tw-pddl"
    if path.exists():
        if official.has_hash(path, sha256):
            return path
        warnings.warn(f"the cached game {path} is damaged and is made again", stacklevel=4)
    text = game_text(spec, commands.split("; ")).encode()
    if hashlib.sha256(text).hexdigest() != sha256:
        what = f"the game made here is not the published one ({sha256[:12]}…)"
        mend = f"install the alfworld that the panel was made with: {shipped()['alfworld']}"
        raise EnvironmentContractError(what, where=str(spec), mend=mend)
    with atomic_file(path) as stream:
        stream.write(text)
    return path
