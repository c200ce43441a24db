"""The log: whole after any crash, cut back on resume, with columns that may appear later."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path

import pytest

from agentbench_credit.errors import TrainingError
from agentbench_credit.run_folder import TRAINING_LOG
from agentbench_credit.trainers.local.log import TrainingLog


def read(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / TRAINING_LOG).read_text("utf-8").splitlines()))


def write(folder: Path, first: int, last: int, done: int = 0, loss: float = 0.1) -> None:
    with TrainingLog(folder, done) as log:
        for update in range(first, last + 1):
            log.write({"update": update, "loss": loss * update})


def test_rows_are_exact_and_later_ones_are_cut_on_resume(tmp_path: Path) -> None:
    write(tmp_path, 1, 7)
    assert [float(row["loss"]) for row in read(tmp_path)] == [0.1 * n for n in range(1, 8)]
    write(tmp_path, 5, 6, done=4, loss=0.3)
    assert [(row["update"], float(row["loss"])) for row in read(tmp_path)] == [
        ("1", 0.1),
        ("2", 0.2),
        ("3", 0.1 * 3),
        ("4", 0.4),
        ("5", 1.5),
        ("6", 0.3 * 6),
    ]
    TrainingLog(tmp_path, 0)
    assert read(tmp_path) == []


def test_a_column_may_appear_later(tmp_path: Path) -> None:
    with TrainingLog(tmp_path, 0) as log:
        log.write({"update": 1, "loss": 0.5})
        log.write({"update": 2, "loss": 0.4, "credit_anchors": 3})
    assert read(tmp_path) == [
        {"update": "1", "loss": "0.5", "credit_anchors": ""},
        {"update": "2", "loss": "0.4", "credit_anchors": "3"},
    ]


def test_lost_rows_are_announced(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    with pytest.warns(UserWarning, match="lacks 1 of 3 updates"):
        TrainingLog(tmp_path, 3)


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / TRAINING_LOG).write_text("name,price\napple,3\n")
    with pytest.raises(TrainingError, match="not a training log"):
        TrainingLog(tmp_path, 0)
    assert "apple" in (tmp_path / TRAINING_LOG).read_text()


def test_tensorboard_holds_the_numbers(tmp_path: Path) -> None:
    write(tmp_path, 1, 5)
    write(tmp_path, 4, 5, done=3, loss=0.2)
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    shown = [(event.step, round(event.value, 5)) for event in events.Scalars("loss")]
    assert shown == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.8), (5, 1.0)]


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="the log cannot be written"):
        TrainingLog(tmp_path / "file" / "run", 0)


def test_without_tensorboard_the_csv_file_is_written_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    write(tmp_path, 1, 2)
    assert len(read(tmp_path)) == 2
    assert "TensorBoard is not installed" in capsys.readouterr().out
    assert not (tmp_path / "tensorboard").exists()
