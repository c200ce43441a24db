"""Panels: which levels belong to which split, shipped or built once and cached, and proven by a hash."""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypedDict, cast

from agentbench_credit.cache import atomic_write_text, cache_dir
from agentbench_credit.command import progress
from agentbench_credit.env import Panel, Task
from agentbench_credit.envs.sokoban.board import BOX, canonical
from agentbench_credit.envs.sokoban.generate import make_room, play_backwards, walk
from agentbench_credit.envs.sokoban.presets import PRESETS, Preset, find_preset
from agentbench_credit.envs.sokoban.solver import solve
from agentbench_credit.envs.sokoban.xsb import pack, read_xsb, to_xsb, unpack
from agentbench_credit.errors import EnvironmentContractError

DRAWS_PER_LEVEL = 100
"""Draws per level of a panel after which building it is given up."""


class Split(TypedDict):
    """What is published about one split of a panel."""

    size: int
    sha256: str


class Published(TypedDict):
    """What is published about a panel."""

    version: int
    splits: dict[str, Split]


@cache
def published() -> dict[str, Published]:
    """Return version, sizes and hashes of the panels, which ship with the package."""
    text = resources.files(__package__).joinpath("panels.json").read_text(encoding="utf-8")
    return cast(dict[str, Published], json.loads(text))


@cache
def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel.

    Levels that are slow to make ship with the package (see `ship`). The others come from
    the cache; the first call on a machine builds them, with a progress bar.

    Args:
        preset: A name in `PRESETS`; presets may share a panel.
        split: ``"train"``, ``"validation"`` or ``"test"``.

    Returns:
        The panel whose hash ships with the package.

    Raises:
        EnvironmentContractError: Unknown preset or split, or the levels built or shipped are not the published ones.
    """
    name = find_preset(preset).panel
    splits = published()[name]["splits"]
    if split not in splits:
        raise EnvironmentContractError(f"no split {split!r}", where="sokoban", mend=f"known: {', '.join(splits)}")
    shipped = shipped_file(name)
    if shipped.is_file():
        panel = _panel(name, split, read_shipped(shipped.read_text(encoding="utf-8"))[split])
        _check(panel)
        return panel
    path = _cache_file(name, split)
    if path.exists():
        try:
            panel = _panel(name, split, json.loads(path.read_text(encoding="utf-8")))
            _check(panel)
        except (OSError, ValueError, TypeError, RecursionError, EnvironmentContractError) as error:
            warnings.warn(f"the cached panel {path} is damaged and is built again ({error})", stacklevel=2)
        else:
            return panel
    panels = {part: _panel(name, part, levels) for part, levels in build(name).items()}
    for part, panel in panels.items():
        _check(panel)
        try:
            atomic_write_text(_cache_file(name, part), json.dumps([task.data for task in panel]))
        except OSError as error:
            warnings.warn(f"the panel {panel} cannot be cached and will be built again ({error})", stacklevel=2)
    return panels[split]


def build(name: str) -> dict[str, list[str]]:
    """Generate all splits of a panel.

    Draws are numbered and each has a seed of its own. The levels that are rotations or mirror images of each other
    form a family; a hash of the family names the split, so none stands in two splits. Validation and test take one
    level of a family, train every level that is new.

    Args:
        name: The panel.

    Returns:
        Levels in XSB by split.

    Raises:
        EnvironmentContractError: Too many draws gave too few levels.
    """
    sizes = {split: row["size"] for split, row in published()[name]["splits"].items()}
    levels: dict[str, list[str]] = {split: [] for split in sizes}
    families: set[str] = set()
    total = sum(sizes.values())
    with progress(f"generate Sokoban {name}", total) as bar:
        for board in _new_boards(name, total * DRAWS_PER_LEVEL):
            family = canonical(board)
            split = _split_of(family)
            if len(levels[split]) == sizes[split] or (split != "train" and family in families):
                continue
            families.add(family)
            levels[split].append(to_xsb(board))
            bar.advance()
            if sum(map(len, levels.values())) == total:
                return levels
    raise EnvironmentContractError(f"{DRAWS_PER_LEVEL} draws per level gave too few levels", where=f"panel {name}")


def shipped_file(name: str) -> Traversable:
    """Return where the package holds a panel's levels, if it ships them."""
    return resources.files(__package__).joinpath("levels", f"{name}.txt")


def ship(name: str, path: Path) -> dict[str, str]:
    """Generate a panel's levels and write them to a file: ``python -m agentbench_credit.envs.sokoban.panels NAME``.

    Args:
        name: The panel; its sizes are in ``panels.json``.
        path: The file.

    Returns:
        The hash of each split, which ``panels.json`` must hold.

    Raises:
        EnvironmentContractError: There is no such panel, or too many draws gave too few levels.
    """
    if name not in published():
        raise EnvironmentContractError(f"no Sokoban panel {name!r}", mend=f"known: {', '.join(published())}")
    levels = build(name)
    atomic_write_text(path, write_shipped(levels))
    return {split: _panel(name, split, levels[split]).sha256 for split in levels}


def write_shipped(levels: dict[str, list[str]]) -> str:
    """Return the text of a file of levels: for each split a title and its levels, run-length coded, one a line."""
    return "".join(f"; {split}\n" + "".join(f"{pack(level)}\n" for level in levels[split]) for split in levels)


def read_shipped(text: str) -> dict[str, list[str]]:
    """Return the levels, in XSB and by split, of what `write_shipped` wrote."""
    levels: dict[str, list[str]] = defaultdict(list)
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("; "):
            rows = levels[line[2:]]
        else:
            rows.append(unpack(line))
    return levels


def panel_from_xsb(path: Path, split: str = "test") -> Panel:
    """Make a panel of all levels in an XSB file, to be given to `SokobanEnv`.

    Args:
        path: The file.
        split: What the panel's split is called.

    Returns:
        A panel named after the file; the tasks are numbered from 1 in the order of the file.

    Raises:
        EnvironmentContractError: The file cannot be read, a level is not valid, or is solved from the start.
    """
    tasks = []
    for number, (board, line) in enumerate(read_xsb(path), 1):
        if BOX not in board:
            raise EnvironmentContractError("the level is solved already", where=f"{path} line {line}")
        tasks.append(Task(f"{path.stem}-{number:04d}", to_xsb(board)))
    return Panel(path.stem, split, 1, tuple(tasks))


def _new_boards(name: str, draws: int) -> Iterator[str]:
    """Yield the good levels of all draws, each once."""
    preset = PRESETS[name]
    rooms: dict[str, str | None] = {}
    seen: set[str] = set()
    for draw in range(draws):
        seed = hashlib.sha256(f"sokoban/{name}/{draw}".encode()).digest()
        rng = random.Random(int.from_bytes(seed, "big"))
        room = make_room(preset.rows, preset.cols, preset.boxes, rng)
        if room is None:
            continue
        if room not in rooms:
            rooms[room] = play_backwards(room)
        farthest = rooms[room]
        if farthest is None:
            continue
        board = walk(farthest, preset.walk, rng)
        if board not in seen:
            seen.add(board)
            if _fits(board, preset):
                yield board


def _fits(board: str, preset: Preset) -> bool:
    # Not through the cache, which a panel would fill, and by no clock, so that every machine makes the same levels.
    solution = solve.__wrapped__(board, seconds=math.inf)
    return solution.status == "solved" and preset.shortest_plan <= len(solution.moves) <= preset.longest_plan


def _split_of(family: str) -> str:
    return ("test", "validation", "train", "train")[hashlib.sha256(family.encode()).digest()[0] % 4]


def _panel(name: str, split: str, levels: list[str]) -> Panel:
    tasks = tuple(Task(f"{name}-{split}-{index:04d}", level) for index, level in enumerate(levels))
    return Panel(name, split, published()[name]["version"], tasks)


def _check(panel: Panel) -> None:
    expected = published()[panel.name]["splits"][panel.split]["sha256"]
    if panel.sha256 != expected:
        what = f"the panel's hash is {panel.sha256[:12]}…, the published one {expected[:12]}…"
        raise EnvironmentContractError(what, where=str(panel), mend="this package does not make its own levels")


def _cache_file(name: str, split: str) -> Path:
    return cache_dir() / "panels" / f"sokoban-{name}-v{published()[name]['version']}-{split}.json"


if __name__ == "__main__":
    for _name in sys.argv[1:]:
        for _split, _sha256 in ship(_name, Path(str(shipped_file(_name)))).items():
            print(f"{_name} {_split}: {_sha256}")
