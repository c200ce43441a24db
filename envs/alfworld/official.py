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
_UNREADABLE = "that cannot be read"


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
    unreadable: list[str] = []
    entries = _read_all(folder, sorted(where.glob(f"*/*/{_FILE}")))
    for path, entry in entries.items():
        reason = _fault(path, entry)
        if reason:
            left_out[reason] += 1
            unreadable += [path] * (reason == _UNREADABLE)
        else:
            tasks.append(Task(f"{NAME}/{Path(path).parent}", json.dumps([path, entry["sha256"]])))
    if not tasks:
        mend = "download the games with alfworld-download, or unset ALFWORLD_DATA"
        raise EnvironmentContractError(f"no game can be used, {dict(left_out)} left out", where=str(where), mend=mend)
    if len(tasks) != SIZES[split] or unreadable:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "none"
        reasons += "".join(f"; {path} cannot be read" for path in unreadable)
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
    name, sha256 = json.loads(task.data)
    path = folder / str(name)
    if not has_hash(path, sha256):
        raise GameFileError("the game file changed while it was in use", where=str(path), mend="start again")
    return path


def has_hash(path: Path, sha256: str) -> bool:
    """Tell whether a file's content has a hash; it is read again only when the file has changed.

    Args:
        path: The file.
        sha256: The hash, in hexadecimal digits.

    Returns:
        Whether it has.

    Raises:
        OSError: The file cannot be read.
    """
    status = path.stat()
    return _hash(path, status.st_size, status.st_mtime_ns) == sha256


@lru_cache(maxsize=4096)
def _hash(path: Path, size: int, changed: int) -> str:  # noqa: ARG001 - a file that changed is another file
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fault(path: str, entry: dict[str, Any]) -> str:
    """Return why ALFWorld does not use a game, empty if it does."""
    if "movable" in path or "Sliced" in path:
        return "with movable or sliced things"
    if Path(path).parts[1].partition("-")[0] not in TASK_TYPES:
        return "of another task type"
    if not entry["sha256"]:
        return _UNREADABLE
    return "" if entry["solvable"] else "not solvable"


def _read_all(folder: Path, files: list[Path]) -> dict[str, dict[str, Any]]:
    """Return hash and solvability of files by their path in the folder, from the cache where they are unchanged."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    memory = cache_dir() / "alfworld" / f"official-{name}.json"
    known = _remembered(memory)
    entries: dict[str, dict[str, Any]] = {}
    fresh = False
    with progress(f"read official ALFWorld games in {folder}", len(files)) as bar:
        for file in files:
            path, status = file.relative_to(folder).as_posix(), file.stat()
            stamp = [status.st_size, status.st_mtime_ns]
            entry = known.get(path)
            if entry is None or entry["stamp"] != stamp:
                entry = known[path] = _read(file) | {"stamp": stamp}
                fresh = True
            entries[path] = entry
            bar.advance()
    if fresh:
        try:
            atomic_write_text(memory, json.dumps(known))
        except OSError as error:
            warnings.warn(f"the list of official games cannot be kept and will be made again ({error})", stacklevel=4)
    return entries


def _remembered(memory: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of files that could be read; what is damaged is announced and found out again."""
    if not memory.exists():
        return {}
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
        return {
            path: entry for path, entry in known.items() if entry["stamp"] and entry["sha256"] and "solvable" in entry
        }
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        warnings.warn(f"the list of official games {memory} is damaged and is made again ({error})", stacklevel=5)
        return {}


def _read(file: Path) -> dict[str, Any]:
    """Return hash and solvability of a game file, no hash if it is none or cannot be read."""
    try:
        content = file.read_bytes()
        solvable = bool(json.loads(content).get("solvable"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return {"sha256": "", "solvable": False}
    return {"sha256": hashlib.sha256(content).hexdigest(), "solvable": solvable}
