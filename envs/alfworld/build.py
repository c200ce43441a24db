"""The maintainer's command that makes `games.json`: ``python -m agentbench_credit.envs.alfworld.build``.

Games are drawn, planned by fast-downward and played to their end by the real engine; what has been planned is kept in
the cache, so that the command goes on where it was stopped. Takes about an hour.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentbench_credit.cache import atomic_write_text, cache_dir
from agentbench_credit.command import parse, progress, run_command
from agentbench_credit.envs.alfworld import wheel
from agentbench_credit.envs.alfworld.engine import EngineDiedError
from agentbench_credit.envs.alfworld.generate import TASK_TYPES, Spec, game_text, goals
from agentbench_credit.envs.alfworld.textworld_engine import TextWorldEngine
from agentbench_credit.errors import EnvironmentContractError

VERSION = 1
"""Of the panels; raised whenever a game changes."""
SIZES = {"train": 100, "validation": 20, "test": 20}
"""Games of each task type by split."""
PLAN_SECONDS = 30.0
"""A game for which fast-downward takes longer is replaced by the next draw."""
LONGEST_PLAN = 25
"""Longer walkthroughs are not used: half of the turn limit."""


@dataclass(frozen=True)
class BuildConfig:
    """Draw and plan the games of the embedded panels, and write what the package ships of them."""

    out: Path = Path("games.json")
    """The file to write."""


@dataclass(frozen=True)
class _Planned:
    spec: Spec
    walkthrough: tuple[str, ...]
    sha256: str


def draws(scene_size: str, split: str, task: str) -> Iterator[Spec]:
    """Yield the candidates of a panel, endlessly; a number names each, and its hash decides everything.

    Args:
        scene_size: ``"small"`` or ``"full"``.
        split: ``"train"``, ``"validation"`` or ``"test"``; the last has floor plans of its own.
        task: One of `TASK_TYPES`.

    Yields:
        Specifications; the same goal in the same floor plan may come again.
    """
    tables = wheel.tables()
    scenes = tables.unseen_scenes if split == "test" else tables.train_scenes
    fitting = [scene for scene in scenes if goals(task, scene)]
    number = 0
    while True:
        digest = hashlib.sha256(f"alfworld/{scene_size}/{split}/{task}/{number}".encode()).digest()
        scene = fitting[int.from_bytes(digest[:4], "big") % len(fitting)]
        choices = goals(task, scene)
        thing, target = choices[int.from_bytes(digest[4:8], "big") % len(choices)]
        yield Spec(task, scene, thing, target, scene_size == "small", int.from_bytes(digest[8:12], "big"))
        number += 1


class Planner:
    """Plans games with fast-downward and remembers what it has planned.

    Args:
        memory: JSON lines file, made if it is missing.
    """

    def __init__(self, memory: Path) -> None:
        self._memory, self._engine = memory, TextWorldEngine()
        self._known: dict[str, list[str] | None] = {}
        memory.parent.mkdir(parents=True, exist_ok=True)
        if memory.exists():
            for line in memory.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._known[entry["game"]] = entry["plan"]

    def plan(self, spec: Spec) -> tuple[str, ...] | None:
        """Return commands that win the game in the real engine with the last of them, None if none were found."""
        try:
            game = game_text(spec, None)
        except EnvironmentContractError:
            return None
        name = hashlib.sha256(game.encode()).hexdigest()
        if name not in self._known:
            self._known[name], seconds = self._solve(game)
            entry = {"game": name, "plan": self._known[name], "seconds": round(seconds, 3), "spec": asdict(spec)}
            with self._memory.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
        plan = self._known[name]
        return None if plan is None else tuple(plan)

    def _solve(self, game: str) -> tuple[list[str] | None, float]:
        import time

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "game.tw-pddl"
            path.write_text(game, encoding="utf-8")
            self._engine.start(path)
            began = time.perf_counter()
            try:
                plan = self._engine.plan(PLAN_SECONDS)
            except EngineDiedError:
                return None, PLAN_SECONDS
            seconds = time.perf_counter() - began
            won = [self._engine.act(command).won for command in plan]
        good = bool(won) and won[-1] and not any(won[:-1]) and len(won) <= LONGEST_PLAN
        return (list(plan) if good else None), seconds


def build(planner: Planner) -> dict[str, dict[str, list[_Planned]]]:
    """Draw and plan all panels.

    Args:
        planner: Plans the games.

    Returns:
        Games by size of the scenes and split, the task types in turns.
    """
    panels: dict[str, dict[str, list[_Planned]]] = {}
    for scene_size in ("small", "full"):
        taken: set[tuple[str, int, str, str]] = set()
        panels[scene_size] = {}
        for split in ("test", "validation", "train"):
            columns = []
            with progress(f"plan ALFWorld {scene_size}/{split}", SIZES[split] * len(TASK_TYPES)) as bar:
                for task in TASK_TYPES:
                    columns.append(_column(planner, scene_size, split, task, taken, bar))
            panels[scene_size][split] = [game for row in zip(*columns, strict=True) for game in row]
    return panels


def _column(
    planner: Planner, scene_size: str, split: str, task: str, taken: set[tuple[str, int, str, str]], bar: Any
) -> list[_Planned]:
    column: list[_Planned] = []
    for spec in draws(scene_size, split, task):
        goal = (spec.task, spec.scene, spec.thing, spec.target)
        if goal in taken or (plan := planner.plan(spec)) is None:
            continue
        taken.add(goal)
        sha256 = hashlib.sha256(game_text(spec, plan).encode()).hexdigest()
        column.append(_Planned(spec, plan, sha256))
        bar.advance()
        if len(column) == SIZES[split]:
            break
    return column


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.
    """
    config = parse(BuildConfig, argv)
    panels = build(Planner(cache_dir() / "alfworld" / "planned.jsonl"))
    lines = []
    for scene_size, splits in panels.items():
        for split, games in splits.items():
            rows = (json.dumps([*astuple(game.spec), "; ".join(game.walkthrough), game.sha256]) for game in games)
            lines.append(f'"{scene_size}/{split}": [\n' + ",\n".join(rows) + "\n]")
    head = f'{{"version": {VERSION}, "alfworld": "{version("alfworld")}",\n'
    atomic_write_text(config.out, head + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    run_command(main)
