"""Panels: published hashes, disjoint splits, and a cache that may be damaged, foreign or read-only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from agentbench_credit.env import ENVIRONMENTS
from agentbench_credit.envs.sokoban import panels
from agentbench_credit.envs.sokoban.board import canonical
from agentbench_credit.envs.sokoban.presets import PRESETS
from agentbench_credit.envs.sokoban.solver import solve
from agentbench_credit.envs.sokoban.xsb import from_xsb
from agentbench_credit.errors import EnvironmentContractError

SPLITS = ("train", "validation", "test")
SMALL = {"train": 6, "validation": 3, "test": 3}
SIZES = {"6x6-1box": (4096, 512, 512), "ragen": (8192, 512, 512), "8x8-2box": (1024, 256, 256)}
SHIPPED = ("10x10-3box", "10x10-4box")
SIZES |= dict.fromkeys(SHIPPED, (1024, 256, 256))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Publish panels of a few levels and use an empty cache; yields the folder of the cached panels."""
    row: panels.Published = {
        "version": 1,
        "splits": {split: {"size": size, "sha256": ""} for split, size in SMALL.items()},
    }
    monkeypatch.setattr(panels, "published", lambda: {"6x6-1box": row})
    for split, levels in panels.build("6x6-1box").items():
        row["splits"][split]["sha256"] = panels._panel("6x6-1box", split, levels).sha256
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path))
    panels.load_panel.cache_clear()
    yield tmp_path / "panels"
    panels.load_panel.cache_clear()


@pytest.mark.parametrize("name", SIZES)
def test_the_published_panels_have_their_hash_size_and_distinct_ids(name: str) -> None:
    loaded = [panels.load_panel(name, split) for split in SPLITS]
    assert tuple(map(len, loaded)) == SIZES[name]
    for panel in loaded:
        assert panel.sha256 == panels.published()[name]["splits"][panel.split]["sha256"]
    ids = [task.id for panel in loaded for task in panel]
    assert len(set(ids)) == len(ids) == sum(SIZES[name])


def families(name: str, split: str) -> set[str]:
    """Return the levels of a split, those that are rotations or mirror images of each other as one."""
    return {canonical(from_xsb(task.data)) for task in panels.load_panel(name, split)}


@pytest.mark.parametrize("name", SIZES)
def test_no_level_is_there_twice(name: str) -> None:
    train, validation, test = (panels.load_panel(name, split) for split in SPLITS)
    assert len({task.data for task in train}) == len(train)
    assert len(families(name, "validation")) == len(validation)
    assert len(families(name, "test")) == len(test)


def test_no_level_stands_turned_or_mirrored_in_another_split_of_any_panel() -> None:
    for one, other in combinations(SPLITS, 2):
        first = set().union(*(families(name, one) for name in SIZES))
        second = set().union(*(families(name, other) for name in SIZES))
        assert not first & second


@pytest.mark.parametrize("name", SIZES)
def test_every_level_looks_like_its_preset_and_can_be_solved_in_time(name: str) -> None:
    preset = PRESETS[name]
    longest = min(preset.longest_plan, preset.turns * preset.moves_per_turn)
    for split in ("validation", "test"):
        for task in panels.load_panel(name, split).tasks[:: 16 if name in SHIPPED else 1]:
            text = from_xsb(task.data)
            assert (text.count("\n") + 1, text.index("\n"), text.count("X")) == (preset.rows, preset.cols, preset.boxes)
            assert preset.shortest_plan <= len(solve(text).moves) <= longest


def test_levels_built_now_are_those_that_the_published_hashes_stand_for() -> None:
    published = {split: panels.load_panel("6x6-1box", split) for split in SPLITS}
    with pytest.MonkeyPatch.context() as patch:
        row = {"version": 1, "splits": {split: {"size": 200, "sha256": ""} for split in SPLITS}}
        patch.setattr(panels, "published", lambda: {"6x6-1box": row})
        built = panels.build("6x6-1box")
    for split, levels in built.items():
        assert levels == [task.data for task in published[split].tasks[:200]]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], ""),
        (lambda text: text.replace("#", " ", 1), "hash"),
        (lambda text: json.dumps(json.loads(text)[::-1]), "hash"),
        (lambda text: json.dumps(json.loads(text)[:-1]), "hash"),
        (lambda text: text[:0], ""),
        (lambda text: f'{{"a": {text}}}', ""),
        (lambda text: f"[1, {text}]", ""),
        (lambda text: str(len(text)), ""),
        (lambda text: f"\xff{text}", ""),
        (lambda text: "[" * 100_000 + text, ""),
    ],
)
def test_a_damaged_cache_is_announced_and_built_again(damage: Callable[[str], str], reason: str) -> None:
    expected = panels.load_panel("6x6-1box", "test")
    path = panels._cache_file("6x6-1box", "test")
    whole = path.read_text(encoding="utf-8")
    path.write_text(damage(whole), encoding="latin-1")
    panels.load_panel.cache_clear()
    with pytest.warns(UserWarning, match=f"{path.name}.*is damaged.*{reason}"):
        assert panels.load_panel("6x6-1box", "test") == expected
    assert path.read_text(encoding="utf-8") == whole
    panels.load_panel.cache_clear()
    assert panels.load_panel("6x6-1box", "test") == expected


def test_one_build_caches_all_splits_and_leaves_nothing_else(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels.load_panel("6x6-1box", "validation")
    assert sorted(path.name for path in small.iterdir()) == sorted(
        f"sokoban-6x6-1box-v1-{split}.json" for split in SPLITS
    )
    panels.load_panel.cache_clear()
    monkeypatch.setattr(panels, "build", None)
    assert [len(panels.load_panel("6x6-1box", split)) for split in SPLITS] == list(SMALL.values())


@pytest.mark.usefixtures("small")
def test_levels_that_differ_from_the_published_ones_are_an_error() -> None:
    panels.published()["6x6-1box"]["splits"]["test"]["sha256"] = "0" * 64
    with pytest.raises(EnvironmentContractError, match="6x6-1box/test: the panel's hash is"):
        panels.load_panel("6x6-1box", "test")
    assert not panels._cache_file("6x6-1box", "test").exists()


def test_a_cache_that_cannot_be_written_is_announced_and_the_panel_is_there(small: Path) -> None:
    small.parent.mkdir(exist_ok=True)
    small.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot be cached"):
        panel = panels.load_panel("6x6-1box", "test")
    assert len(panel) == SMALL["test"]


@pytest.mark.usefixtures("small")
def test_too_few_levels_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "DRAWS_PER_LEVEL", 1)
    with pytest.raises(EnvironmentContractError, match="too few levels"):
        panels.build("6x6-1box")


@pytest.mark.parametrize(
    ("preset", "split", "what"), [("7x7", "test", "no Sokoban preset '7x7'"), ("ragen", "dev", "no split 'dev'")]
)
def test_unknown_names_are_errors_that_list_the_known(preset: str, split: str, what: str) -> None:
    with pytest.raises(EnvironmentContractError, match=what):
        ENVIRONMENTS.get("sokoban").load_panel(preset, split)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_levels_are_those_that_the_command_makes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {split: [task.data for task in panels.load_panel(name, split)][:2] for split in SPLITS}
    row: panels.Published = {"version": 1, "splits": {split: {"size": 2, "sha256": ""} for split in SPLITS}}
    monkeypatch.setattr(panels, "published", lambda: {name: row})
    hashes = panels.ship(name, tmp_path / "levels.txt")
    assert panels.read_shipped((tmp_path / "levels.txt").read_text()) == first
    assert hashes == {split: panels._panel(name, split, first[split]).sha256 for split in SPLITS}
    with pytest.raises(EnvironmentContractError, match="no Sokoban panel '9x9'"):
        panels.ship("9x9", tmp_path / "levels.txt")


def test_a_changed_shipped_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = panels.shipped_file("10x10-3box").read_text(encoding="utf-8")
    monkeypatch.setattr(panels, "shipped_file", lambda name: tmp_path / f"{name}.txt")
    panels.load_panel.cache_clear()
    for damaged in (text.replace("@-", "-@", 1), text.replace("; train\n", "; train\n5#|#@$.#|5#\n"), ""):
        (tmp_path / "10x10-3box.txt").write_text(damaged)
        with pytest.raises(EnvironmentContractError, match="10x10-3box/train: the panel's hash is"):
            panels.load_panel("10x10-3box", "train")
        panels.load_panel.cache_clear()


BUILD = """
from agentbench_credit.envs.sokoban import panels
sizes = {"train": 6, "validation": 3, "test": 3}
row = {"version": 1, "splits": {split: {"size": size, "sha256": ""} for split, size in sizes.items()}}
panels.published = lambda: {"6x6-1box": row}
print(panels.build("6x6-1box"))
"""


@pytest.mark.usefixtures("small")
def test_another_process_with_another_hash_seed_builds_the_same_levels() -> None:
    children = [
        subprocess.run(
            [sys.executable, "-c", BUILD],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in ("1", "2")
    ]
    assert children[0].stdout == children[1].stdout == f"{panels.build('6x6-1box')}\n"
