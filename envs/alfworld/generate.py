"""Games made from what the ``alfworld`` package ships: a floor plan, things put into its receptacles, a goal."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentbench_credit.envs.alfworld import wheel
from agentbench_credit.envs.alfworld.wheel import Place, Pose
from agentbench_credit.errors import EnvironmentContractError

T = TypeVar("T")

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""ALFWorld's six, in its order."""

SMALL_PLACES = 8
"""Receptacles of a small scene."""
SMALL_THINGS = 8
"""Things in a small scene besides those of the goal."""

LAMP = "DeskLamp"
_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf")
_TOOLS = {
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
}
_CODES = {"-": "_minus_", "|": "_bar_", "+": "_plus_", ".": "_dot_"}


@dataclass(frozen=True)
class Spec:
    """Everything that a generated game follows from."""

    task: str
    """One of `TASK_TYPES`."""
    scene: int
    """ALFRED's number of the floor plan."""
    thing: str
    """Class of the thing that the goal is about."""
    target: str
    """Class of the receptacle that it goes to, or of the lamp."""
    small: bool
    """Only some receptacles and things of the scene."""
    seed: int
    """Decides what lies where and how the goal is worded."""


@dataclass(frozen=True)
class Thing:
    """A thing in a scene."""

    id: str
    """As ALFRED names it."""
    kind: str
    """Its class."""
    place: Place
    """The receptacle that it lies in or on."""


@dataclass(frozen=True)
class World:
    """A furnished scene."""

    places: tuple[Place, ...]
    """The receptacles."""
    things: tuple[Thing, ...]
    """The things."""
    start: Pose
    """Where the agent is at first, away from every receptacle."""
    sentence: str
    """The goal in words."""


class _Draws:
    """Draws that are the same in every version of Python: only ``random()`` is promised to be."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, limit: int) -> int:
        return int(self._random() * limit)

    def one(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]


def goals(task: str, scene: int) -> list[tuple[str, str]]:
    """Return what a task type can ask for in a floor plan.

    Args:
        task: One of `TASK_TYPES`.
        scene: The floor plan.

    Returns:
        Pairs of thing and target, empty if the scene does not suit the task type.
    """
    plan, tables = wheel.scene(scene), wheel.tables()
    kinds = {place.kind for place in plan.places}
    things = [thing for thing in plan.things if thing not in tables.affords["Toggleable"]]
    if task == "look_at_obj_in_light":
        lit = LAMP in plan.things and bool(kinds.intersection(_LAMP_STANDS))
        return [(thing, LAMP) for thing in things if lit and any(thing in tables.holds[kind] for kind in kinds)]
    affordance, tool = _TOOLS.get(task, (None, None))
    if tool is not None and tool not in kinds:
        return []
    if affordance is not None:
        things = [thing for thing in things if thing in tables.affords[affordance]]
    return [
        (thing, target)
        for thing in things
        for target in sorted(kinds - {tool})
        if thing in tables.holds[target] and any(thing in tables.holds[kind] for kind in kinds - {target})
    ]


def furnish(spec: Spec) -> World:
    """Put things into a scene.

    No thing of the goal's class lies in a receptacle of the target's class at first.

    Args:
        spec: The game.

    Returns:
        The furnished scene, the same for the same spec everywhere.

    Raises:
        EnvironmentContractError: The scene does not suit the goal.
    """
    plan, draws = wheel.scene(spec.scene), _Draws(spec.seed)
    if (spec.thing, spec.target) not in goals(spec.task, spec.scene):
        what = f"{spec.task} with {spec.thing} and {spec.target} does not suit the floor plan"
        raise EnvironmentContractError(what, where=f"floor plan {spec.scene}")
    places = _choose_places(spec, plan.places, draws) if spec.small else plan.places
    kinds = [spec.thing] * _count_of_goal_things(spec, draws)
    others = [kind for kind in plan.things if kind not in (spec.thing, *wheel.tables().affords["Toggleable"])]
    for kind in draws.some(others, SMALL_THINGS) if spec.small else others:
        kinds += [kind] * (1 if spec.small else 1 + draws.below(2))
    things: dict[str, Thing] = {}
    if LAMP in plan.things and (stands := [place for place in places if place.kind in _LAMP_STANDS]):
        _put(things, LAMP, draws.one(stands), draws)
    for kind in kinds:
        fitting = [place for place in places if kind in wheel.tables().holds[place.kind]]
        if kind == spec.thing:
            fitting = [place for place in fitting if place.kind != spec.target]
        if fitting:
            chosen = draws.one(sorted({place.kind for place in fitting}))
            _put(things, kind, draws.one([place for place in fitting if place.kind == chosen]), draws)
    sentence = draws.one(wheel.goal(spec.task).sentences).format(
        obj=spec.thing.lower(), recep=spec.target.lower(), toggle=spec.target.lower()
    )
    return World(places, tuple(things.values()), _start(places, draws), sentence)


def game_text(spec: Spec, walkthrough: Sequence[str] | None) -> str:
    """Return a game in the form of ``game.tw-pddl``.

    Args:
        spec: The game.
        walkthrough: Commands that solve it, None while they are not known.

    Returns:
        JSON with domain, grammar, problem, ``solvable`` and ``walkthrough``.
    """
    world = furnish(spec)
    game = {
        "pddl_domain": wheel.domain(),
        "grammar": wheel.grammar().replace("UNKNOWN GOAL", world.sentence),
        "pddl_problem": _problem(spec, world),
        "solvable": None if walkthrough is None else True,
        "walkthrough": None if walkthrough is None else list(walkthrough),
    }
    return json.dumps(game)


def _count_of_goal_things(spec: Spec, draws: _Draws) -> int:
    least = 2 if spec.task == "pick_two_obj_and_place" else 1
    return least if spec.small else least + draws.below(2)


def _choose_places(spec: Spec, places: Sequence[Place], draws: _Draws) -> tuple[Place, ...]:
    """Choose a few places, among them those without which the goal cannot be reached."""
    holds = wheel.tables().holds
    _, tool = _TOOLS.get(spec.task, (None, None))
    wanted = _LAMP_STANDS if spec.target == LAMP else (spec.target,)
    chosen = [draws.one([place for place in places if place.kind in wanted])]
    chosen.append(draws.one([p for p in places if spec.thing in holds[p.kind] and p.kind != spec.target]))
    if tool is not None:
        chosen.append(draws.one([place for place in places if place.kind == tool]))
    rest = [place for place in places if place not in chosen]
    names = {place.id for place in chosen + draws.some(rest, SMALL_PLACES - len(set(chosen)))}
    return tuple(place for place in places if place.id in names)


def _put(things: dict[str, Thing], kind: str, place: Place, draws: _Draws) -> None:
    """Give a thing a name of its own, made as ALFRED does from its class and where it lies."""
    x, y, z = (float(number) for number in place.id.split("|")[1:4])
    while True:
        spot = (x + draws.below(41) / 100 - 0.2, y + draws.below(20) / 100, z + draws.below(41) / 100 - 0.2)
        name = "|".join((kind, *(f"{abs(number):05.2f}".rjust(6, "-" if number < 0 else "+") for number in spot)))
        if name not in things:
            things[name] = Thing(name, kind, place)
            return


def _start(places: Sequence[Place], draws: _Draws) -> Pose:
    taken = {place.pose for place in places}
    while True:
        x, z = draws.one(places).pose[0], draws.one(places).pose[1]
        pose = (x + draws.below(5) - 2, z + draws.below(5) - 2, draws.below(4), 30)
        if pose not in taken:
            return pose


def _code(name: str) -> str:
    return "".join(_CODES.get(char, char) for char in name)


def _location(pose: Pose) -> str:
    return _code("loc|{}|{}|{}|{}".format(*pose))


def _problem(spec: Spec, world: World) -> str:
    goal = wheel.goal(spec.task).pddl.format(obj=spec.thing, recep=spec.target, toggle=spec.target).replace("#", "-")
    locations = sorted({_location(place.pose) for place in world.places} | {_location(world.start)})
    objects = [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in sorted({thing.kind for thing in world.things})),
        *(f"{kind}Type - rtype" for kind in sorted({place.kind for place in world.places})),
        *(f"{_code(thing.id)} - object" for thing in world.things),
        *(f"{_code(place.id)} - receptacle" for place in world.places),
        *(f"{location} - location" for location in locations),
    ]
    facts = ["(= (total-cost) 0)", *_facts(world)]
    lines = [
        "(define (problem generated)",
        "    (:domain alfred)",
        "    (:objects",
        *(f"        {line}" for line in objects),
        "    )",
        "    (:init",
        *(f"        {line}" for line in facts),
        "    )",
    ]
    return "\n".join(lines) + goal


def _facts(world: World) -> Iterator[str]:
    tables = wheel.tables()
    yield f"(atLocation agent1 {_location(world.start)})"
    for place in world.places:
        name = _code(place.id)
        yield f"(receptacleType {name} {place.kind}Type)"
        yield f"(receptacleAtLocation {name} {_location(place.pose)})"
        if place.kind in tables.openable:
            yield f"(openable {name})"
    abilities = {"Cleanable": "cleanable", "Heatable": "heatable", "Coolable": "coolable", "Sliceable": "sliceable"}
    for thing in world.things:
        name = _code(thing.id)
        yield f"(objectType {name} {thing.kind}Type)"
        yield f"(inReceptacle {name} {_code(thing.place.id)})"
        yield f"(objectAtLocation {name} {_location(thing.place.pose)})"
        yield f"(toggleable {name})" if thing.kind == LAMP else f"(pickupable {name})"
        if thing.kind in tables.vessels:
            yield f"(isReceptacleObject {name})"
        yield from (f"({word} {name})" for ability, word in abilities.items() if thing.kind in tables.affords[ability])
    kinds = sorted({thing.kind for thing in world.things})
    for place_kind in sorted({place.kind for place in world.places}):
        taken = tables.holds[place_kind]
        yield from (f"(canContain {place_kind}Type {kind}Type)" for kind in kinds if kind in taken)
