"""Where generated data is kept between runs, and how files are written so that none is ever seen half-written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_dir() -> Path:
    """Return the folder for data that can be made again: ``$AGENTBENCH_CACHE``, else the user's cache folder."""
    if chosen := os.environ.get("AGENTBENCH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentbench_credit"


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file so that any reader, also after a crash, finds the old content or the new one, whole.

    Args:
        path: The file; missing folders are made.

    Yields:
        A binary stream; what is written to it becomes the file when the block ends without an exception.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 as `atomic_file` does.

    Args:
        path: The file; missing folders are made.
        text: Its new content.
    """
    with atomic_file(path) as stream:
        stream.write(text.encode())
