"""The official games under ``$ALFWORLD_DATA``, with those left out that ALFWorld itself leaves out."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentbench_credit.cache import atomic_write_text, cache_dir
from agentbench_credit.command import progress
from agentbench_credit.env import Panel, Task
from agentbench_credit.envs.alfworld.engine import GameFileError
from agentbench_credit.envs.alfworld.generate import TASK_TYPES
from agentbench_credit.errors import EnvironmentContractError

NAME = "official"
"""Name of the panels."""
VERSION = 1
"""Raised when another choice of games is made from the same files."""
FOLDERS = {"train": "train", "validation": "valid_seen", "test": "valid_unseen"}
"""What ALFWorld calls the splits."""
SIZES = {"train": 3553, "validation": 140, "test": 134}
"""Games that ALFWorld counts in each; another number is warned about."""

_GAMES = "json_2.1.1"
_FILE = "game.tw-pddl"


def data_folder() -> Path | None:
    """Return where the official games are, None if ``$ALFWORLD_DATA`` does not hold them."""
    variable = os.environ.get("ALFWORLD_DATA")
    folder = Path(variable) / _GAMES if variable else None
    return folder if folder is not None and folder.is_dir() else None


def load_panel(folder: Path, split: str) -> Panel:
    """Return a panel of official games, in the order of their folders' names.

    The first call reads every file, with a progress bar; what was found is kept in the cache.

    Args:
        folder: What `data_folder` returned.
        split: A key of `FOLDERS`.

    Returns:
        The panel; task ids are ``official/valid_seen/…``, task data path and hash of the file.

    Raises:
        EnvironmentContractError: The split has no game.
    """
    where = folder / FOLDERS[split]
    tasks: list[Task] = []
    left_out: Counter[str] = Counter()
    entries = _read_all(folder, sorted(where.glob(f"*/*/{_FILE}")))
    for path, entry in entries.items():
        reason = _fault(path, entry)
        if reason:
            left_out[reason] += 1
        else:
            tasks.append(Task(f"{NAME}/{Path(path).parent}", json.dumps([path, entry["sha256"]])))
    if not tasks:
        mend = "download the games with alfworld-download, or unset ALFWORLD_DATA"
        raise EnvironmentContractError(f"no game can be used, {dict(left_out)} left out", where=str(where), mend=mend)
    if len(tasks) != SIZES[split]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "none"
        what = f"{where} holds {len(tasks)} usable games, ALFWorld counts {SIZES[split]}; left out: {reasons}"
        warnings.warn(what, stacklevel=3)
    return Panel(NAME, split, VERSION, tuple(tasks))


def game_file(task: Task) -> Path:
    """Return a task's file.

    Args:
        task: A task of an official panel.

    Returns:
        The file.

    Raises:
        GameFileError: It is not the one that the panel was made from.
    """
    folder = data_folder()
    if folder is None:
        raise GameFileError("the official games are no longer there", where=task.id, mend="set ALFWORLD_DATA again")
    return _checked(folder, task.data)


@lru_cache(maxsize=4096)
def _checked(folder: Path, data: str) -> Path:
    name, sha256 = json.loads(data)
    path = folder / str(name)
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise GameFileError("the game file changed while it was in use", where=str(path), mend="start again")
    return path


def _fault(path: str, entry: dict[str, Any]) -> str:
    """Return why ALFWorld does not use a game, empty if it does."""
    if "movable" in path or "Sliced" in path:
        return "with movable or sliced things"
    if Path(path).parts[1].partition("-")[0] not in TASK_TYPES:
        return "of another task type"
    return "" if entry["solvable"] else "not solvable"


def _read_all(folder: Path, files: list[Path]) -> dict[str, dict[str, Any]]:
    """Return hash and solvability of files by their path in the folder, from the cache where they are unchanged."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    memory = cache_dir() / "alfworld" / f"official-{name}.json"
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    entries: dict[str, dict[str, Any]] = {}
    fresh = False
    with progress(f"read official ALFWorld games in {folder}", len(files)) as bar:
        for file in files:
            path, status = file.relative_to(folder).as_posix(), file.stat()
            stamp = [status.st_size, status.st_mtime_ns]
            if known.get(path, {}).get("stamp") != stamp:
                known[path] = _read(file) | {"stamp": stamp}
                fresh = True
            entries[path] = known[path]
            bar.advance()
    if fresh:
        try:
            atomic_write_text(memory, json.dumps(known))
        except OSError as error:
            warnings.warn(f"the list of official games cannot be kept and will be made again ({error})", stacklevel=4)
    return entries


def _read(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    try:
        solvable = bool(json.loads(content).get("solvable"))
    except (ValueError, AttributeError):
        solvable = False
    return {"sha256": hashlib.sha256(content).hexdigest(), "solvable": solvable}
