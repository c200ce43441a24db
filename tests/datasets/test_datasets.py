"""Finding, fetching and checking data sets: from a folder, from wheels, from a hub on this machine."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentbench_credit.datasets import DATASETS, check_copy, fetch, locate, package, read_items
from agentbench_credit.datasets.catalogue import DataSet, Folder, Hub, Wheel
from agentbench_credit.datasets.items import items_sha256, make_items
from agentbench_credit.datasets.wheels import file_sha256
from agentbench_credit.errors import DataSetError

ROWS = [("What is 1 + 1?", "2"), ("Solve $x^2 = 4$.", "-2, 2")]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AGENTBENCH_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def toy(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DataSet:
    """A set with a folder, a wheel that only this machine has, and nothing else."""
    del cache
    index = tmp_path / "index"
    index.mkdir()
    wheel_file = index / "toy_sums-1.0-py3-none-any.whl"
    lines = "".join(json.dumps({"problem": p, "expected_answer": a}) + "\n" for p, a in ROWS)
    with zipfile.ZipFile(wheel_file, "w") as archive:
        archive.writestr("toy_sums/items.txt", lines)
        archive.writestr("toy_sums-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-sums\nVersion: 1.0\n")
        archive.writestr(
            "toy_sums-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n"
        )
        archive.writestr("toy_sums-1.0.dist-info/RECORD", "")
    sha256 = items_sha256(make_items("toy", ROWS))
    wheel = Wheel("toy-sums", "1.0", file_sha256(wheel_file), "toy_sums/items.txt", sha256)
    dataset = DataSet("toy", "problems", "1", "none", 2, (Folder("toy.jsonl", sha256), wheel))
    monkeypatch.setitem(DATASETS, "toy", dataset)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return dataset


def _folder_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str]]) -> Path:
    file = tmp_path / "data" / "toy.jsonl"
    file.parent.mkdir()
    file.write_text("".join(json.dumps({"problem": p, "answer": a}) + "\n" for p, a in rows))
    monkeypatch.setenv("AGENTBENCH_DATA", str(file.parent))
    return file


def test_a_folder_comes_before_a_wheel(toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("toy")
    _folder_copy(tmp_path, monkeypatch, ROWS)
    found = locate("toy")
    assert found is not None
    assert found.source == toy.sources[0]


@pytest.mark.parametrize("spoil", ["changed", "cut", "torn line", "binary"])
def test_a_broken_copy_is_refused_and_no_other_takes_its_place(
    toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    del toy
    file = _folder_copy(tmp_path, monkeypatch, ROWS)
    whole = file.read_bytes()
    spoiled = {
        "changed": whole.replace(b"-2, 2", b"-2, 3"),
        "cut": whole.splitlines(keepends=True)[0],
        "torn line": whole[:-5],
        "binary": b"\xff" + whole,
    }
    file.write_bytes(spoiled[spoil])
    with pytest.raises(DataSetError, match="toy"):
        read_items("toy")


def test_a_wheel_is_downloaded_once_checked_and_read(
    toy: DataSet, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del toy
    assert locate("toy") is None
    assert read_items("toy") == make_items("toy", ROWS)
    assert "fetching toy: toy-sums==1.0 from PyPI" in capfd.readouterr().out
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert len(read_items("toy")) == 2
    assert "fetching" not in capfd.readouterr().out


def test_a_wheel_with_another_hash_is_refused(toy: DataSet, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    other = Wheel("toy-sums", "1.0", "0" * 64, "toy_sums/items.txt", "")
    monkeypatch.setitem(DATASETS, "toy", DataSet("toy", "problems", "1", "none", 2, (toy.sources[0], other)))
    with pytest.raises(DataSetError, match="cut or not the pinned one"):
        fetch("toy")
    assert not list((cache / "wheels").iterdir())


def test_a_cut_wheel_in_the_cache_is_refused(toy: DataSet, cache: Path) -> None:
    del toy
    fetch("toy")
    file = cache / "wheels" / "toy_sums-1.0-py3-none-any.whl"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DataSetError, match=r"whl: the file is cut"):
        locate("toy")


def test_check_finds_a_changed_file_of_an_unpacked_wheel(toy: DataSet, cache: Path) -> None:
    del toy
    fetch("toy")
    check_copy("toy")
    (cache / "wheels" / "toy_sums-1.0-py3-none-any" / "toy_sums-1.0.dist-info" / "WHEEL").write_text("changed")
    with pytest.raises(DataSetError, match="WHEEL: missing or changed"):
        check_copy("toy")


def test_wheels_may_lie_in_the_data_folder(toy: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "data" / "wheels"
    wheels.mkdir(parents=True)
    (tmp_path / "index" / "toy_sums-1.0-py3-none-any.whl").rename(wheels / "toy_sums-1.0-py3-none-any.whl")
    monkeypatch.setenv("AGENTBENCH_DATA", str(wheels.parent))
    assert read_items("toy") == make_items("toy", ROWS)
    check_copy("toy")
    del toy


def test_what_no_source_has_says_what_was_tried(toy: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    del toy
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(DataSetError, match=r"toy\.jsonl is not there.*pip could not download.*AGENTBENCH_DATA/wheels"):
        package("toy")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """A server that answers as the hub does for one file."""
    rows = [{"question": p, "final": a} for p, a in ROWS]
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200 if self.path.endswith("/resolve/main/test.jsonl") else 404)
            for key, value in {"X-Repo-Commit": "a" * 40, "ETag": '"b"', "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    del tmp_path
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_hub_is_asked_last_and_its_items_are_held_to_their_first_hash(
    cache: Path, hub: str, tmp_path: Path
) -> None:
    code = (
        "from agentbench_credit.datasets import DATASETS, read_items, locate\n"
        "from agentbench_credit.datasets.catalogue import DataSet, Folder, Hub\n"
        "hub = Hub('someone/sums', 'test.jsonl', 'question', 'final')\n"
        "DATASETS['toy'] = DataSet('toy', 'problems', '1', 'none', 2, (Folder('toy.jsonl', ''), hub))\n"
        "print(read_items('toy')[1]['answer'])\n"
    )
    environment = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1"}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["fetching toy: someone/sums on the Hugging Face hub", "-2, 2"], done.stderr
    record = json.loads((cache / "hub" / "toy.json").read_text())
    assert record["revision"] == "a" * 40
    file = cache / "hub" / "toy.jsonl"
    file.write_text(file.read_text().replace("-2, 2", "-2, 3"))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "the items have changed since they were fetched" in done.stderr


def test_items_of_every_source_shape_become_text() -> None:
    rows = [("p", "work #### 18"), ("p", ["1", "2"]), ("p", 27.0), ("p", 3)]
    assert [item["answer"] for item in make_items("toy", rows)] == ["18", "1, 2", "27", "3"]
    with pytest.raises(DataSetError, match="toy, item 1"):
        make_items("toy", [("p", "1"), ("p", None)])


@pytest.mark.parametrize("name", [name for name, each in DATASETS.items() if each.kind == "problems"])
def test_every_set_that_is_here_has_its_items(name: str) -> None:
    if locate(name) is None:
        pytest.skip(f"{name} is not on this machine; set AGENTBENCH_DATA to a folder that has it")
    items = read_items(name)
    assert len(items) == DATASETS[name].items
    assert len({item["id"] for item in items}) == len(items)


def test_hub_sources_are_the_last_resort() -> None:
    for each in DATASETS.values():
        kinds = [type(source) for source in each.sources]
        assert kinds == sorted(kinds, key=[Folder, Wheel, Hub].index)
