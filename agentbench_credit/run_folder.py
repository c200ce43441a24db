"""A run's folder belongs to one configuration: the same command goes on, another one is refused."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from agentbench_credit.errors import ConfigError

RUN_FILE = "run.json"
"""The configuration that a folder belongs to."""
LOCK_FILE = ".lock"
"""Locked while a process works in the folder."""
TRAINING_LOG = "training.csv"
"""A training's log: one row per update."""


def claim(folder: Path, run: dict[str, Any], *, may_differ: tuple[str, ...] = ()) -> None:
    """Make a folder this run's own, or check that it already is.

    Args:
        folder: Created if missing.
        run: JSON-compatible configuration.
        may_differ: Keys whose value may change from call to call; the new value is stored.

    Raises:
        ConfigError: The folder belongs to another configuration, whose differing keys the message names, or it cannot
            be written.
    """
    from agentbench_credit.cache import atomic_write_text

    path = folder / RUN_FILE
    wanted = json.loads(json.dumps(run))
    found = read_run(folder)
    if found is not None:
        keys = sorted((wanted.keys() | found.keys()) - set(may_differ))
        differing = [key for key in keys if found.get(key) != wanted.get(key)]
        if differing:
            changed = [f"{key}: {found.get(key)!r} there, {wanted.get(key)!r} asked" for key in differing]
            mend = "give another --out, or remove the folder"
            raise ConfigError(f"the folder holds another run ({'; '.join(changed)})", where=str(folder), mend=mend)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, json.dumps(wanted, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        _raise_unwritable(folder, error)


def _raise_unwritable(folder: Path, error: OSError) -> NoReturn:
    mend = "give another --out that you may write to, or make room"
    raise ConfigError(f"the folder cannot be written ({error.strerror})", where=str(folder), mend=mend) from error


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return the configuration that a folder belongs to, None if it belongs to none.

    Raises:
        ConfigError: The description is torn.
    """
    path = folder / RUN_FILE
    try:
        found = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise ConfigError("not a run description", where=str(path), mend="remove the folder") from error
    return dict(found)


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs; the system frees it when the process dies.

    Args:
        folder: Created if missing.

    Raises:
        ConfigError: Another process works there, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / LOCK_FILE).open("w")
    except OSError as error:
        _raise_unwritable(folder, error)
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            mend = "wait for it, stop it, or give another --out"
            raise ConfigError("another process works in this folder", where=str(folder), mend=mend) from error
        yield


def training_folder(out: Path, method: str, updates: int, seed: int) -> Path:
    """Return where a method's training with a budget of updates stands below a run's folder."""
    return out / "train" / f"{method}-{updates}updates-seed{seed}"


def evaluation_folder(out: Path, method: str, updates: int, seed: int, benchmark: str) -> Path:
    """Return where the evaluation of a method trained with a budget of updates stands below a run's folder."""
    return out / "eval" / f"{method}-{updates}updates-seed{seed}" / benchmark
