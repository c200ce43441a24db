"""The cache folder, and files that are never seen half-written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agentbench_credit.cache import atomic_file, atomic_write_text, cache_dir


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.setenv("AGENTBENCH_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "agentbench_credit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "agentbench_credit"


def test_writing_makes_folders_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    atomic_write_text(path, "first √\n")
    with atomic_file(path) as stream:
        stream.write("second √\n".encode())
        assert path.read_bytes() == "first √\n".encode(), "the old content until the end"
    assert path.read_bytes() == "second √\n".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_a_write_that_fails_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.txt"
    atomic_write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        atomic_write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_and_a_reader_that_only_ever_sees_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    texts = [str(number) * 50_000 for number in range(4)]
    atomic_write_text(path, texts[0])

    def write(text: str) -> None:
        for _ in range(20):
            atomic_write_text(path, text)

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_text() in texts
    for writer in writers:
        writer.join()
    assert list(tmp_path.iterdir()) == [path]
