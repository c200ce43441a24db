"""Panels: which goals belong to which split."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypedDict, cast

from agentbench_credit.cache import atomic_write_text, cache_dir
from agentbench_credit.env import Panel, Task
from agentbench_credit.envs.webshop.embedded_goals import embedded_goals
from agentbench_credit.envs.webshop.goals import Goal, official_goals, to_data
from agentbench_credit.envs.webshop.official import find_files, read_mapping
from agentbench_credit.envs.webshop.presets import find_preset
from agentbench_credit.envs.webshop.shop import announce, files_key, official_folder, open_catalogue, shop_folder
from agentbench_credit.errors import EnvironmentContractError

OFFICIAL_SPLITS = {"test": slice(0, 500), "validation": slice(500, 1500), "train": slice(1500, None)}
"""Which goals of the official order belong to which split."""


class Split(TypedDict):
    """What is published about one split of the embedded panel."""

    size: int
    sha256: str


class Published(TypedDict):
    """What is published about the embedded shop."""

    version: int
    catalogue: str
    splits: dict[str, Split]


@cache
def published() -> Published:
    """Return version, sizes and hashes of the embedded shop's catalogue and panels, which ship with the package."""
    text = resources.files(__package__).joinpath("panels.json").read_text(encoding="utf-8")
    return cast(Published, json.loads(text)["embedded"])


def load_panel(preset: str, split: str) -> Panel:
    """Return a preset's panel; that of the official data is made once per machine and cached.

    Args:
        preset: A name in `presets.PRESETS`.
        split: ``"train"``, ``"validation"`` or ``"test"``.

    Returns:
        The panel; its name says which shop it is of.

    Raises:
        EnvironmentContractError: Unknown preset or split; the goals made here are not the published ones; or
            ``$WEBSHOP_DATA`` is set and its files are not right, or too few for a split.
    """
    settings = find_preset(preset)
    if split not in OFFICIAL_SPLITS:
        mend = f"known: {', '.join(OFFICIAL_SPLITS)}"
        raise EnvironmentContractError(f"no split {split!r}", where="webshop", mend=mend)
    folder = official_folder(settings)
    panels = _embedded() if folder is None else _official(folder, settings.goals, files_key(folder))
    if len(panels[split]) == 0:
        what = f"the data has {sum(map(len, panels.values()))} goals, so that the split {split} is empty"
        mend = "use a larger items_shuffle file, or the preset webshop-synthetic"
        raise EnvironmentContractError(what, where=str(folder), mend=mend)
    return panels[split]


@cache
def _embedded() -> dict[str, Panel]:
    catalogue = open_catalogue(None)
    _check("catalogue", catalogue.sha256, published()["catalogue"])
    version = published()["version"]
    panels = {}
    for split, goals in embedded_goals(catalogue).items():
        tasks = tuple(Task(f"embedded-{split}-{index:04d}", to_data(goal)) for index, goal in enumerate(goals))
        panels[split] = Panel("embedded", split, version, tasks)
        _check(split, panels[split].sha256, published()["splits"][split]["sha256"])
    return panels


def _check(what: str, found: str, expected: str) -> None:
    if found != expected:
        text = f"the hash of {what} is {found[:12]}…, the published one {expected[:12]}…"
        raise EnvironmentContractError(text, where="webshop embedded", mend="this package does not make its own goals")


@cache
def _official(folder: Path, kind: str, key: str) -> dict[str, Panel]:
    items, attributes, human = find_files(folder)
    name = f"{items.stem}-{kind}"
    path = shop_folder(cache_dir() / "webshop") / f"goals-{key}-{kind}.json"
    texts = _cached_goals(path)
    if texts is None:
        counts: Counter[str] = Counter()
        rows = read_mapping(human if kind == "human" else attributes)
        if kind == "human":
            instructions = {id_.upper(): value for id_, value in rows.items() if isinstance(value, list)}
        else:
            instructions = {id_.upper(): [value] for id_, value in rows.items() if isinstance(value, dict)}
        counts["bad instruction"] += len(rows) - len(instructions)
        goals = official_goals(iter(open_catalogue(folder)), instructions, human=kind == "human", counts=counts)
        announce(counts, human if kind == "human" else attributes)
        texts = _keep(path, goals)
    tasks = [Task(f"{name}-{index:05d}", text) for index, text in enumerate(texts)]
    return {split: Panel(name, split, 1, tuple(tasks[part])) for split, part in OFFICIAL_SPLITS.items()}


def _keep(path: Path, goals: list[Goal]) -> list[str]:
    texts = [to_data(goal) for goal in goals]
    atomic_write_text(path, json.dumps([_sha256(texts), texts], ensure_ascii=False))
    return texts


def _sha256(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _cached_goals(path: Path) -> list[str] | None:
    if not path.exists():
        return None
    try:
        texts: list[str]
        sha256, texts = json.loads(path.read_text(encoding="utf-8"))
        if _sha256(texts) != sha256:
            raise ValueError("they have another hash")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        warnings.warn(f"the cached goals {path} are damaged and are made again ({error})", stacklevel=2)
        return None
    return texts
