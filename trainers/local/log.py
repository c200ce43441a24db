"""What each update did: one row of a CSV file, and TensorBoard where it is installed."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from agentbench_credit.cache import atomic_write_text
from agentbench_credit.errors import TrainingError
from agentbench_credit.run_folder import TRAINING_LOG

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TrainingLog:
    """A run's log, cut back to the updates that the run goes on from.

    The CSV file is replaced as a whole after each update, so that a crash cannot tear it.

    Args:
        folder: The run's folder.
        updates: Updates already done; later rows, left by a run that was stopped, are removed.

    Raises:
        TrainingError: The folder's CSV file is not a log, or cannot be written.
    """

    def __init__(self, folder: Path, updates: int) -> None:
        self.path = folder / TRAINING_LOG
        self._rows = _read(self.path, updates)
        if len(self._rows) < updates:
            warnings.warn(f"{self.path} lacks {updates - len(self._rows)} of {updates} updates", stacklevel=2)
        self._save()
        self._tensorboard = _tensorboard(folder / "tensorboard", updates)

    def write(self, row: Mapping[str, float]) -> None:
        """Add a row.

        Args:
            row: Numbers by column, with the update's number, from 1, under ``update``.
        """
        self._rows.append({column: repr(value) for column, value in row.items()})
        self._save()
        if self._tensorboard is not None:
            for column, value in row.items():
                self._tensorboard.add_scalar(column, value, int(row["update"]))
            self._tensorboard.flush()

    def _save(self) -> None:
        # A diagnostic may appear for the first time in a later update.
        columns = list(dict.fromkeys(column for row in self._rows for column in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        try:
            atomic_write_text(self.path, text.getvalue())
        except OSError as error:
            mend = "make room or give another --out; checkpoints are intact, the same command goes on from them"
            what = f"the log cannot be written ({error.strerror})"
            raise TrainingError(what, where=str(self.path), mend=mend) from error

    def __enter__(self) -> TrainingLog:
        """Return the log."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close TensorBoard's file."""
        if self._tensorboard is not None:
            self._tensorboard.close()


def _read(path: Path, updates: int) -> list[dict[str, str]]:
    """Return the rows of the first updates."""
    if not path.exists():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
        return [row for row in rows if int(row["update"]) <= updates]
    except (KeyError, ValueError) as error:
        raise TrainingError("not a training log", where=str(path), mend="move this file away") from error


def _tensorboard(folder: Path, updates: int) -> SummaryWriter | None:
    """Return TensorBoard's writer, None if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print(f"TensorBoard is not installed, the log is {TRAINING_LOG} alone; pip install tensorboard adds it")
        return None
    return SummaryWriter(str(folder), purge_step=updates + 1)
