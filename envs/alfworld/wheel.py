"""What the installed ``alfworld`` package ships: domain, grammar, floor plans, object tables, goal templates.

The package itself is never imported: importing it makes folders and sets an environment variable.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from agentbench_credit.errors import EnvironmentContractError

INSTALL = "pip install 'agentbench-credit[alfworld]'"

Pose = tuple[int, int, int, int]
"""Where the agent stands to use a receptacle: x and z in quarter metres, quarter turns, degrees down."""

_SLICED = "Sliced"


@dataclass(frozen=True)
class Place:
    """A receptacle of a floor plan."""

    id: str
    """As ALFRED names it, such as ``"Cabinet|+00.68|+00.50|-02.20"``."""
    kind: str
    """Its class, such as ``"Cabinet"``."""
    pose: Pose
    """Where the agent stands to use it; several places may share one."""


@dataclass(frozen=True)
class Scene:
    """A floor plan."""

    number: int
    """ALFRED's number of it."""
    places: tuple[Place, ...]
    """Its receptacles, by id."""
    things: tuple[str, ...]
    """Classes of things that lie about, by name."""


@dataclass(frozen=True)
class Tables:
    """Which things and receptacles go together, and what can be done to a thing."""

    holds: dict[str, frozenset[str]]
    """By receptacle class: classes of things that it takes."""
    affords: dict[str, frozenset[str]]
    """By ``"Heatable"``, ``"Coolable"``, ``"Cleanable"``, ``"Toggleable"``, ``"Sliceable"``: classes of things."""
    vessels: frozenset[str]
    """Classes of things that can hold other things."""
    openable: frozenset[str]
    """Classes of receptacles that open and close."""
    train_scenes: tuple[int, ...]
    """Floor plans of the train and seen splits."""
    unseen_scenes: tuple[int, ...]
    """Floor plans of the unseen split."""


@dataclass(frozen=True)
class Goal:
    """How a task type is said and checked."""

    pddl: str
    """The ``(:goal …)`` of a problem, with ``{obj}``, ``{recep}``, ``{toggle}``."""
    sentences: tuple[str, ...]
    """Ways to say it, with the same names."""


@cache
def folder() -> Path:
    """Return the folder of the installed package.

    Raises:
        EnvironmentContractError: It is not installed.
    """
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentContractError("the package alfworld is not installed", where="ALFWorld", mend=INSTALL)
    return Path(spec.submodule_search_locations[0])


@cache
def domain() -> str:
    """Return the PDDL domain."""
    return (folder() / "data" / "alfred.pddl").read_text(encoding="utf-8")


@cache
def grammar() -> str:
    """Return the grammar of texts and commands; it says ``UNKNOWN GOAL`` where the task's sentence goes."""
    return (folder() / "data" / "alfred.twl2").read_text(encoding="utf-8")


@cache
def tables() -> Tables:
    """Return the tables of things and receptacles, sliced things left out."""
    constants = _module("constants")
    whole = {
        kind: frozenset(thing for thing in things if not thing.endswith(_SLICED))
        for kind, things in constants.VAL_RECEPTACLE_OBJECTS.items()
    }
    return Tables(
        holds=whole,
        affords={name: frozenset(things) for name, things in constants.VAL_ACTION_OBJECTS.items()},
        vessels=frozenset(constants.MOVABLE_RECEPTACLES),
        openable=frozenset(constants.OPENABLE_CLASS_LIST) - frozenset(constants.MOVABLE_RECEPTACLES),
        train_scenes=tuple(constants.TRAIN_SCENE_NUMBERS),
        unseen_scenes=tuple(constants.TEST_SCENE_NUMBERS),
    )


@cache
def goal(task_type: str) -> Goal:
    """Return a task type's goal.

    Args:
        task_type: Such as ``"pick_heat_then_place_in_recep"``.

    Returns:
        The goal, as the package words it.
    """
    entry = _module("goal_library").gdict[task_type]
    return Goal(entry["pddl"], tuple(entry["templates"]))


@cache
def scene(number: int) -> Scene:
    """Return a floor plan.

    Args:
        number: ALFRED's number, such as 7.

    Returns:
        Its places, and the things that can be carried or switched on and lie about there.
    """
    layouts = folder() / "gen" / "layouts"
    poses = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text(encoding="utf-8"))
    kinds = set(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text(encoding="utf-8")))
    holds = tables().holds
    known = set[str]().union(*holds.values()) | tables().affords["Toggleable"]
    places = [Place(name, _kind(name), _pose(pose)) for name, pose in sorted(poses.items())]
    places = [place for place in places if place.kind in holds and place.kind not in tables().vessels]
    return Scene(number, tuple(places), tuple(sorted((kinds & known) - holds.keys() | (kinds & tables().vessels))))


def _kind(name: str) -> str:
    return re.split(r"\|", name)[-1] if name.endswith("Basin") else name.partition("|")[0]


def _pose(numbers: list[float]) -> Pose:
    x, z, rotation, horizon = numbers
    return round(4 * x), round(4 * z), round(rotation / 90), round(horizon)


@cache
def _module(name: str) -> ModuleType:
    """Run one file of the package on its own; it imports nothing but the standard library."""
    path = folder() / "gen" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"_alfworld_{name}", path)
    if spec is None or spec.loader is None:
        raise EnvironmentContractError("the installed package alfworld lacks a file", where=str(path), mend=INSTALL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
