"""Shortest plans for ALFWorld's goals, found with full knowledge of the scene.

A goal asks for things to be somewhere, in the hand, clean, hot, cool or switched on. Each is brought about by a fixed
sequence of actions; what is left to choose is which thing, which receptacle, which order, and where to put down what is
in the hand at first. All choices are tried, and the shortest sequence is then played in the game itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentbench_credit.envs.alfworld.atoms import bits
from agentbench_credit.envs.alfworld.game import Game
from agentbench_credit.envs.alfworld.grounding import State
from agentbench_credit.envs.alfworld.pddl import Atom

_TREATMENTS = {
    "isclean": ("cleanobject", "cleanable", "sinkbasintype"),
    "ishot": ("heatobject", "heatable", "microwavetype"),
    "iscool": ("coolobject", "coolable", "fridgetype"),
}
_KNOWN = {"inreceptacle", "holds", "istoggled", "atlocation", *_TREATMENTS}

Move = tuple[str, str, str]
"""Action, receptacle and thing, empty where there is none."""


@dataclass(frozen=True)
class _Scene:
    """What never changes."""

    location: dict[str, str]
    """Where the agent stands to use a receptacle."""
    openable: frozenset[str]
    takes: frozenset[tuple[str, str]]
    """Receptacle and thing."""
    pickupable: frozenset[str]
    able: frozenset[tuple[str, str]]
    """Ability, such as ``"heatable"``, and thing."""
    tools: dict[str, tuple[str, ...]]
    """Receptacles by the fact that they bring about."""


@dataclass
class _Sketch:
    """A course of moves, tried on what matters of the state."""

    scene: _Scene
    here: str
    held: str
    where: dict[str, str]
    opened: set[str]
    treated: set[tuple[str, str]]
    moves: list[Move] = field(default_factory=list)

    def copy(self) -> _Sketch:
        """Return an independent copy."""
        return _Sketch(
            self.scene, self.here, self.held, dict(self.where), set(self.opened), set(self.treated), list(self.moves)
        )

    def go(self, receptacle: str) -> None:
        """Stand at a receptacle."""
        if self.here != self.scene.location[receptacle]:
            self.here = self.scene.location[receptacle]
            self.moves.append(("gotolocation", receptacle, ""))

    def reach(self, receptacle: str) -> None:
        """Stand at a receptacle that is not closed."""
        self.go(receptacle)
        if receptacle in self.scene.openable and receptacle not in self.opened:
            self.opened.add(receptacle)
            self.moves.append(("openobject", receptacle, ""))

    def take(self, thing: str, drops: Iterable[str]) -> Iterator[_Sketch]:
        """Yield the ways to have a thing in the hand."""
        if self.held == thing:
            yield self
        elif not self.held and thing in self.where and thing in self.scene.pickupable:
            self.reach(self.where[thing])
            self.moves.append(("pickupobject", self.where.pop(thing), thing))
            self.held = thing
            yield self
        elif self.held:
            for drop in drops:
                if (drop, self.held) in self.scene.takes:
                    free = self.copy()
                    free.put(drop)
                    yield from free.take(thing, ())

    def put(self, receptacle: str) -> None:
        """Put what is in the hand somewhere."""
        self.reach(receptacle)
        self.moves.append(("putobject", receptacle, self.held))
        self.where[self.held], self.held = receptacle, ""

    def treat(self, fact: str, tool: str) -> None:
        """Clean, heat or cool what is in the hand."""
        self.go(tool)
        self.moves.append((_TREATMENTS[fact][0], tool, self.held))
        self.treated.add((fact, self.held))
        self.treated -= {({"ishot": "iscool", "iscool": "ishot"}.get(fact, ""), self.held)}


def plan(game: Game, state: State) -> tuple[str, ...]:
    """Return the fewest commands that reach the goal.

    Args:
        game: A compiled game.
        state: Where to begin.

    Returns:
        The commands; empty if the goal holds, or if it is none of ALFWorld's.
    """
    if game.world.won(state):
        return ()
    sketch = _start(game, state)
    best: dict[tuple[Move, ...], None] = {}
    for need, forbid in game.world.goals:
        atoms = [game.world.atoms.listed[number] for number in bits(need)]
        if not forbid and {atom[0] for atom in atoms} <= _KNOWN:
            best |= dict.fromkeys(tuple(done.moves) for done in _courses(sketch, atoms))
    for moves in sorted(best, key=lambda moves: (len(moves), moves)):
        commands = _played(game, state, moves)
        if commands is not None:
            return commands
    return ()


def _courses(start: _Sketch, atoms: list[Atom]) -> Iterator[_Sketch]:
    """Yield the ways to make atoms true, one for each order and choice."""
    wanted: dict[str, dict[str, str]] = {}
    for name, *words in atoms:
        thing = words[1] if name == "holds" else words[0]
        if name != "atlocation":
            wanted.setdefault(thing, {})[name] = words[-1]
    lamps = [thing for thing, facts in wanted.items() if "istoggled" in facts]
    things = [thing for thing in wanted if thing not in lamps]
    place = next((atom[2] for atom in atoms if atom[0] == "atlocation"), None)
    # What is to stay in the hand comes last.
    for order in itertools.permutations(things):
        if any("holds" in wanted[thing] for thing in order[:-1]):
            continue
        courses: list[_Sketch] = [start.copy()]
        for thing in order:
            courses = [after for before in courses for after in _handled(before, thing, wanted[thing])]
        for course in courses:
            yield from _lit(course, lamps, place)


def _handled(course: _Sketch, thing: str, facts: dict[str, str]) -> Iterator[_Sketch]:
    """Yield the ways to treat a thing and to put it where it belongs."""
    target = facts.get("inreceptacle")
    missing = [fact for fact in facts if fact in _TREATMENTS and (fact, thing) not in course.treated]
    if not missing and target is not None and course.where.get(thing) == target:
        yield course
        return
    if any((_TREATMENTS[fact][1], thing) not in course.scene.able for fact in missing):
        return
    if target is not None and (target, thing) not in course.scene.takes:
        return
    for taken in course.copy().take(thing, _drops(course, thing)):
        for tools in itertools.product(*(course.scene.tools[fact] for fact in missing)):
            after = taken.copy()
            for fact, tool in zip(missing, tools, strict=True):
                after.treat(fact, tool)
            if target is not None:
                after.put(target)
            yield after


def _drops(course: _Sketch, thing: str) -> list[str]:
    """Return where to put down what is in the way: here, where the thing is, or the first place that is always open."""
    near = {course.here, course.scene.location.get(course.where.get(thing, ""), "")}
    drops = [receptacle for receptacle, location in course.scene.location.items() if location in near]
    elsewhere = (name for name in course.scene.location if (name, course.held) in course.scene.takes)
    far = sorted(elsewhere, key=lambda name: name in course.scene.openable and name not in course.opened)
    return list(dict.fromkeys([*drops, *far[:1]]))


def _lit(course: _Sketch, lamps: list[str], place: str | None) -> Iterator[_Sketch]:
    for lamp in lamps:
        if lamp not in course.where:
            return
        course.go(course.where[lamp])
        if ("istoggled", lamp) not in course.treated:
            course.moves.append(("toggleobject", course.where[lamp], lamp))
    if place is None or course.here == place:
        yield course
    elif not lamps:
        receptacle = next((name for name, location in course.scene.location.items() if location == place), None)
        if receptacle is not None:
            course.go(receptacle)
            yield course


def _start(game: Game, state: State) -> _Sketch:
    fixed = _by_name(sorted(game.world.atoms.static))
    now = _by_name(game.world.atoms.listed[number] for number in bits(state.holds))
    kinds, places = _pairs(fixed, "objecttype"), _pairs(fixed, "receptacletype")
    fitting = set(fixed.get("cancontain", []))
    scene = _Scene(
        location=_pairs(fixed, "receptacleatlocation"),
        openable=_first(fixed, "openable"),
        takes=frozenset((p, t) for p, place in places.items() for t, kind in kinds.items() if (place, kind) in fitting),
        pickupable=_first(fixed, "pickupable"),
        able=frozenset((able, thing) for _, able, _ in _TREATMENTS.values() for thing in _first(fixed, able)),
        tools={
            fact: tuple(place for place, kind in places.items() if kind == tool)
            for fact, (_, _, tool) in _TREATMENTS.items()
        },
    )
    return _Sketch(
        scene,
        here=next(iter(_pairs(now, "atlocation").values()), ""),
        held=next(iter(_pairs(now, "holds").values()), ""),
        where=_pairs(fixed, "inreceptacle") | _pairs(now, "inreceptacle"),
        opened=set(_first(now, "opened")),
        treated={(fact, thing) for fact in (*_TREATMENTS, "istoggled") for thing in _first(now, fact)},
    )


def _by_name(atoms: Iterable[Atom]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for name, *words in atoms:
        found.setdefault(name, []).append(tuple(words))
    return found


def _pairs(facts: dict[str, list[tuple[str, ...]]], name: str) -> dict[str, str]:
    return {words[0]: words[1] for words in facts.get(name, [])}


def _first(facts: dict[str, list[tuple[str, ...]]], name: str) -> frozenset[str]:
    return frozenset(words[0] for words in facts.get(name, []))


def _played(game: Game, state: State, moves: tuple[Move, ...]) -> tuple[str, ...] | None:
    """Return the commands of moves, None if the game does not accept them or they do not win."""
    commands: list[str] = []
    for action, receptacle, thing in moves:
        wanted = {name for name in (receptacle, thing) if name}
        for command, operator in game.node(state).operators.items():
            if operator.action == action and wanted <= set(operator.objects.values()):
                commands.append(command)
                state = operator.apply(state)
                break
        else:
            return None
    return tuple(commands) if game.world.won(state) else None
