"""Checkpoints that are whole or do not exist: written aside, flushed to the disk, then renamed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from agentbench_credit.errors import TrainingError
from agentbench_credit.policy.transformers import no_progress_bars
from agentbench_credit.trajectory import Trajectory
from agentbench_credit.trajectory_io import write_trajectories

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentbench_credit.policy.transformers import TransformersPolicy

FOLDER = "checkpoints"
"""Where a run keeps them: ``update-000050`` and the like."""

KEEP = 2
"""Checkpoints that stay; older ones are removed."""

STATE_FILE = "trainer.pt"
"""What only the trainer needs: the state of its parts and the number of updates done."""

ROLLOUTS_FILE = "rollouts.parquet"
"""The rollouts of the checkpoint's last update, to look at and to run other credit methods over."""

_NAME = re.compile(r"update-(\d{6,})")


class Part(Protocol):
    """What a trainer keeps beside the policy: an optimiser, a critic."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that goes on from here."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""


def newest_checkpoint(out: Path) -> Path | None:
    """Return the checkpoint with the most updates of a run, None if there is none.

    Args:
        out: The run's folder.

    Returns:
        Its path; folders without `STATE_FILE` are incomplete and ignored.
    """
    found = _checkpoints(out / FOLDER)
    return found[-1] if found else None


def _checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints, in the order of their updates."""
    if not folder.is_dir():
        return []
    names = {path: _NAME.fullmatch(path.name) for path in folder.iterdir() if (path / STATE_FILE).is_file()}
    return [path for _, path in sorted((int(match[1]), path) for path, match in names.items() if match)]


def save_checkpoint(
    out: Path,
    updates: int,
    policy: TransformersPolicy,
    parts: Mapping[str, Part],
    rollouts: Sequence[Trajectory],
) -> Path:
    """Write a checkpoint that `load_policy` reads, and remove all but the last `KEEP`.

    Args:
        out: The run's folder.
        updates: Updates done.
        policy: The trained model and its tokenizer.
        parts: What is saved beside them, by name.
        rollouts: Those of the last update.

    Returns:
        The new checkpoint.

    Raises:
        TrainingError: It cannot be written; earlier checkpoints are intact.
    """
    folder = out / FOLDER
    target = folder / f"update-{updates:06d}"
    temporary = folder / f".{target.name}.tmp"
    try:
        for left_over in folder.glob(".update-*.tmp"):
            shutil.rmtree(left_over)
        temporary.mkdir(parents=True)
        write_trajectories(temporary / ROLLOUTS_FILE, rollouts)
        _write(temporary, policy, {"updates": updates} | {name: part.state_dict() for name, part in parts.items()})
        if target.exists():  # incomplete, or it would have been resumed from
            shutil.rmtree(target)
        temporary.rename(target)
        _flush(folder)
        for path in _checkpoints(folder)[:-KEEP]:
            shutil.rmtree(path)
    except Exception as error:  # the file formats have exceptions of their own for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        mend = "make room or give another --out; earlier checkpoints are intact, the same command goes on from them"
        what = f"the checkpoint cannot be written ({_reason(error)})"
        raise TrainingError(what, where=str(target), mend=mend) from error
    return target


def _write(folder: Path, policy: TransformersPolicy, state: dict[str, Any]) -> None:
    """Write all files of a checkpoint and flush them to the disk."""
    with no_progress_bars():
        policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    torch.save(state, folder / STATE_FILE)
    for path in (*folder.iterdir(), folder):
        _flush(path)


def _flush(path: Path) -> None:
    """Make a file's or folder's content survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    """Return an exception's kind and the first line of its text."""
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]


def load_checkpoint(path: Path, model: PreTrainedModel, parts: Mapping[str, Part]) -> int:
    """Load a checkpoint into a model and what goes with it.

    Args:
        path: The checkpoint.
        model: A model of the same architecture and dtype.
        parts: What was saved beside it, by name.

    Returns:
        Updates done.

    Raises:
        TrainingError: The checkpoint is damaged.
    """
    try:
        with no_progress_bars():
            saved = type(model).from_pretrained(path, dtype=model.dtype)
        model.load_state_dict(saved.state_dict())
        state = torch.load(path / STATE_FILE, map_location=model.device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return int(state["updates"])
    except Exception as error:  # a damaged file fails in many ways inside the libraries
        mend = "remove this folder; the same command then goes on from the checkpoint before it"
        raise TrainingError(f"the checkpoint is damaged ({_reason(error)})", where=str(path), mend=mend) from error
