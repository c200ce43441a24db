"""Trajectories on disk: Parquet for finished collections, JSON lines for people and for runs that must survive a kill.

Both formats give back exactly what was written: token ids, float32 log-probabilities, None, -0.0, denormals and
infinities, every string. Only a NaN loses its sign and payload in JSON lines. Layout of version 1:

* JSON lines, strict JSON in ASCII: the header ``{"format": "agentbench_credit.trajectories", "schema_version": 1}``,
  then one object a line with the field names of `Trajectory` and `Turn`; bytes are base64, and the non-finite numbers
  of ``reward``, ``logprobs`` and ``timings`` are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
* Parquet: the same two values in the file's metadata, one row a trajectory, ``turns`` as list of struct, ids and
  log-probabilities as lists, keys as binary, dictionaries as JSON strings.
* Strings: a lone surrogate, which UTF-8 cannot hold, is stored as U+FDD0 and its four hexadecimal digits, U+FDD0
  itself as U+FDD0 and ``fdd0``. All other text is stored as it is.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

from agentbench_credit.cache import atomic_file
from agentbench_credit.errors import TrajectoryFileError
from agentbench_credit.trajectory import SCHEMA_VERSION, Trajectory, Turn
from agentbench_credit.trajectory_fields import (
    CHANGED,
    FORMAT,
    TRAJECTORY,
    TURN,
    check_format,
    check_names,
    dumps,
    load,
    loads,
    store,
)

_HEADER = dumps({"format": FORMAT, "schema_version": SCHEMA_VERSION}).encode() + b"\n"


class _TornEndError(TrajectoryFileError):
    """The last line of a JSON lines file is incomplete, as a killed writer leaves it."""


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Write trajectories to a file, which appears complete or not at all.

    Args:
        path: A ``.parquet`` or ``.jsonl`` file; one that exists is replaced, missing folders are made.
        trajectories: What to write, held in memory a few at a time.

    Raises:
        TrajectoryFileError: Another suffix, or a trajectory that would come back changed.
    """
    path = Path(path)
    parquet = _is_parquet(path)
    with atomic_file(path) as stream:
        if parquet:
            from agentbench_credit.trajectory_parquet import write_parquet

            write_parquet(stream, trajectories, str(path))
        else:
            stream.write(_HEADER)
            for index, trajectory in enumerate(trajectories):
                stream.write(_line(trajectory, f"{path}, trajectory {index}"))


def read_trajectories(path: str | Path) -> list[Trajectory]:
    """Read all trajectories of a file.

    Args:
        path: A ``.parquet`` or ``.jsonl`` file.

    Returns:
        The trajectories in the order in which they were written.

    Raises:
        TrajectoryFileError: The file is missing, torn, foreign or of another schema version; the message names the
            line (from 1, the header) or the row (from 0).
    """
    return list(iter_trajectories(path))


def iter_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """Read the trajectories of a file one after the other; the memory needed does not grow with the file.

    Args:
        path: A ``.parquet`` or ``.jsonl`` file.

    Yields:
        The trajectories in the order in which they were written.

    Raises:
        TrajectoryFileError: As for `read_trajectories`, when the reader comes to the fault.
    """
    path = Path(path)
    parquet = _is_parquet(path)
    if not path.is_file():
        raise TrajectoryFileError("no such file", where=str(path), mend="check the path")
    if path.stat().st_size == 0:
        raise TrajectoryFileError("the file is empty", where=str(path), mend="its writer was stopped: make it anew")
    if parquet:
        from agentbench_credit.trajectory_parquet import iter_parquet

        yield from iter_parquet(path)
        return
    with path.open("rb") as stream:
        for _, trajectory in _read_lines(stream, path):
            yield trajectory


class TrajectoryLog:
    """JSON lines file that a run appends to, so that a kill at any time costs at most the trajectory being written.

    Opening an existing log drops a torn last line, with a warning, and reads the trajectories before it. The file is
    locked until the log is closed or the process ends.

    Args:
        path: A ``.jsonl`` file, made with its folders if missing.

    Attributes:
        path: The file.
        trajectories: What the file held when it was opened.

    Raises:
        TrajectoryFileError: Another suffix, another process holds the log, or the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.trajectories: list[Trajectory] = []
        if _is_parquet(self.path):
            raise TrajectoryFileError("a log cannot be Parquet", where=str(path), mend="name it .jsonl")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b", buffering=0)
        try:
            self._lock()
            self._end = self._read()
        except BaseException:
            self._file.close()
            raise

    def append(self, trajectory: Trajectory) -> None:
        """Write a trajectory; it is on the disk when this returns, and not in the file at all when this fails.

        Args:
            trajectory: What to write.

        Raises:
            TrajectoryFileError: The trajectory would come back changed.
        """
        self._write(_line(trajectory, f"{self.path}, {trajectory.task_id}"))

    def close(self) -> None:
        """Close the file and give up the lock."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the log."""
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            mend = "wait for it to end, or choose another folder"
            raise TrajectoryFileError("another run is writing this log", where=str(self.path), mend=mend) from error

    def _read(self) -> int:
        """Read what is there, drop a torn end, begin an empty log; returns the length of what is kept."""
        with self.path.open("rb") as stream:
            head = stream.readline()
            if head != _HEADER and _HEADER.startswith(head):
                self._drop(0, len(head))
                self._end = 0
                self._write(_HEADER)
                return len(_HEADER)
            stream.seek(0)
            end = len(head)
            try:
                for line_end, trajectory in _read_lines(stream, self.path):
                    self.trajectories.append(trajectory)
                    end = line_end
            except _TornEndError:
                self._drop(end, os.fstat(self._file.fileno()).st_size - end)
        return end

    def _drop(self, end: int, torn: int) -> None:
        if torn:
            warnings.warn(f"{self.path}: dropped a torn last line of {torn} bytes", stacklevel=4)
            self._file.truncate(end)

    def _write(self, line: bytes) -> None:
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file)
        except BaseException:
            self._file.truncate(self._end)
            raise
        self._end += len(line)


def _is_parquet(path: Path) -> bool:
    if path.suffix not in (".parquet", ".jsonl"):
        mend = "name the file .parquet or .jsonl"
        raise TrajectoryFileError(f"unknown suffix {path.suffix!r}", where=str(path), mend=mend)
    return path.suffix == ".parquet"


def _line(trajectory: Trajectory, where: str) -> bytes:
    check_format(FORMAT, trajectory.schema_version, where)
    record = store(vars(trajectory), TRAJECTORY, where, cells=False)
    turns = enumerate(trajectory.turns)
    record["turns"] = [store(vars(turn), TURN, f"{where}, turn {t}", cells=False) for t, turn in turns]
    return dumps(record).encode() + b"\n"


def _trajectory(record: Any, where: str) -> Trajectory:
    if not isinstance(record, dict) or not isinstance(record.get("turns", []), list):
        raise TrajectoryFileError("the line holds no trajectory", where=where, mend=CHANGED)
    check_names(record, [*TRAJECTORY, "turns"], where)
    turns = []
    for t, turn in enumerate(record["turns"]):
        place = f"{where}, turn {t}"
        if not isinstance(turn, dict):
            raise TrajectoryFileError("no object", where=place, mend=CHANGED)
        check_names(turn, TURN, place)
        turns.append(Turn(**load(turn, TURN, place, cells=False)))
    return Trajectory(**load(record, TRAJECTORY, where, cells=False), turns=tuple(turns))


def _read_lines(stream: BufferedReader, path: Path) -> Iterator[tuple[int, Trajectory]]:
    """Yield each trajectory with the file offset of its line's end."""
    end = _read_header(stream, path)
    for number, line in enumerate(stream, 2):
        where = f"{path}, line {number}"
        try:
            record = loads(line)
            if not line.endswith(b"\n"):
                raise ValueError("the end of the line is missing")
        except ValueError as error:
            if stream.peek(1):
                raise TrajectoryFileError(f"torn or foreign line ({error})", where=where, mend=CHANGED) from error
            mend = "resume the run that wrote it, which drops the line, or delete the line"
            raise _TornEndError(f"torn last line of {len(line)} bytes", where=where, mend=mend) from error
        end += len(line)
        yield end, _trajectory(record, where)


def _read_header(stream: BufferedReader, path: Path) -> int:
    line = stream.readline()
    if line != _HEADER and _HEADER.startswith(line):
        raise _TornEndError("torn header", where=f"{path}, line 1", mend="its writer was stopped: make it anew")
    try:
        header = loads(line)
    except ValueError:
        header = None
    found = header if isinstance(header, dict) else {}
    check_format(found.get("format"), found.get("schema_version"), f"{path}, line 1")
    return len(line)
