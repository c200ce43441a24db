"""A compiled game: what can be done in a state, what it changes and what the player is told."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from agentbench_credit.envs.alfworld.engine import GameFileError, UnsupportedGameError
from agentbench_credit.envs.alfworld.grammar import Call, Each, Grammar, Listed, Symbol, Text, Value, read_grammar
from agentbench_credit.envs.alfworld.grounding import Operator, State
from agentbench_credit.envs.alfworld.pddl import Atom, Domain, Typed, check_arguments, read_domain, read_problem
from agentbench_credit.envs.alfworld.world import World

REMEMBERED_GAMES = 32
"""Games that stay compiled in a process."""
REMEMBERED_STATES = 256
"""States of a game whose commands are kept; facts, which take more memory, are not."""


@dataclass(frozen=True)
class Entity:
    """What the grammar's expressions can say about an object."""

    id: str
    """Its name in the problem."""
    type: str
    """Its type."""
    name: str
    """Its name in texts, such as ``"cabinet 3"``."""
    definite: str = "the"
    indefinite: str = "a"

    def __str__(self) -> str:
        """Return the name in texts."""
        return self.name


@dataclass(frozen=True)
class Node:
    """A state with what can be done in it."""

    operators: dict[str, Operator]
    """By command."""
    admissible: tuple[str, ...]
    """The commands, sorted."""
    won: bool
    """Whether the goal holds."""


class Game:
    """A compiled game.

    Args:
        data: The contents of ``game.tw-pddl``.

    Raises:
        UnsupportedGameError: It uses something that is not known here.
        GameFileError: It is torn, or contradicts itself.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        problem = read_problem(data["pddl_problem"])
        domain = _domain(data["pddl_domain"])
        check_arguments(domain, problem)
        self.world = World(domain, problem)
        self._grammar = _grammar(data["grammar"])
        if missing := {action.name for action in domain.actions} - self._grammar.actions.keys():
            raise UnsupportedGameError(f"the grammar has no {', '.join(sorted(missing))}", where="TextWorld grammar")
        kinds = dict(domain.constants + problem.objects)
        self.entities = _entities(problem.init, kinds)
        self.plans: OrderedDict[State, tuple[str, ...]] = OrderedDict()
        self._nodes: OrderedDict[State, Node] = OrderedDict()
        self._commands: dict[tuple[str, ...], str] = {}
        self._spoken: dict[str, frozenset[str] | None] = {}

    @cached_property
    def introduction(self) -> str:
        """What the player reads first."""
        return self._say((Call("intro"),), {}, self.world.first)

    def node(self, state: State) -> Node:
        """Return a state with what can be done in it.

        Args:
            state: The state.

        Returns:
            Commands and goal.

        Raises:
            UnsupportedGameError: One command has two meanings.
        """
        node = self._nodes.get(state)
        if node is None:
            operators: dict[str, Operator] = {}
            for operator in self.world.grounding.operators(state):
                command = self._command(operator, state)
                known = operators.setdefault(command, operator)
                if known is not operator and known.apply(state) != operator.apply(state):
                    raise UnsupportedGameError(f"{command!r} has two meanings", where="TextWorld grammar")
            node = Node(operators, tuple(sorted(operators)), self.world.won(state))
            self._nodes[state] = node
            if len(self._nodes) > REMEMBERED_STATES:
                self._nodes.popitem(last=False)
        return node

    def feedback(self, operator: Operator, state: State) -> str:
        """Return what the player is told when an operator has led to a state."""
        return self._say(self._grammar.actions[operator.action].feedback, operator.objects, state)

    def _command(self, operator: Operator, state: State) -> str:
        symbols = self._grammar.actions[operator.action].command
        if operator.action not in self._spoken:
            names = [self._variables(symbol, operator.objects) for symbol in symbols]
            fixed = frozenset().union(*(found for found in names if found is not None))
            self._spoken[operator.action] = None if None in names else fixed
        spoken = self._spoken[operator.action]
        if spoken is None:
            return self._say(symbols, operator.objects, state)
        key = (operator.action, *[found for (name, _), found in operator.objects.items() if name in spoken])
        if key not in self._commands:
            self._commands[key] = self._say(symbols, operator.objects, state)
        return self._commands[key]

    def _variables(self, symbol: Symbol, objects: Mapping[Typed, str]) -> frozenset[str] | None:
        """Return the variables that decide a part of a command, None if the state can change it too."""
        if isinstance(symbol, Listed):
            return self._variables(symbol.each, objects)
        if isinstance(symbol, Text):
            return frozenset()
        if not isinstance(symbol, Each) or isinstance(symbol.text, Call):
            return None
        facts = symbol.query.facts if symbol.query else ()
        asked = {variable for _, variables in facts for variable in variables}
        if not (asked <= objects.keys() and all(self.world.is_static(name) for name, _ in facts)):
            return None
        return frozenset(symbol.text.code.co_names).union(name for name, _ in asked)

    def _say(self, symbols: tuple[Symbol, ...], objects: Mapping[Typed, str], state: State) -> str:
        parts: list[str] = []
        for symbol in symbols:
            if isinstance(symbol, Text):
                parts.append(symbol.text)
            elif isinstance(symbol, Call):
                parts.append(self._call(symbol, objects, state))
            elif isinstance(symbol, Each):
                parts += self._each(symbol, objects, state)
            elif isinstance(symbol, Listed):
                parts.append(self._list(self._each(symbol.each, objects, state), objects, state))
            else:
                raise UnsupportedGameError(f"{symbol} is not understood", where="TextWorld grammar")
        return "".join(parts)

    def _call(self, call: Call, objects: Mapping[Typed, str], state: State) -> str:
        for rule in self._grammar.rules.get(call.rule, ()):
            if rule.condition is None or any(True for _ in self.world.matches(rule.condition, objects, state)):
                return self._say(rule.symbols, objects, state)
        raise UnsupportedGameError(f"there is no rule for #{call.rule}#", where="TextWorld grammar")

    def _each(self, each: Each, objects: Mapping[Typed, str], state: State) -> list[str]:
        matches = [objects] if each.query is None else self.world.matches(each.query, objects, state)
        return [self._one(each.text, match, state) for match in matches]

    def _one(self, text: Call | Value, objects: Mapping[Typed, str], state: State) -> str:
        if isinstance(text, Call):
            return self._call(text, objects, state)
        variables = {name: self.entities[value] for (name, _), value in objects.items()}
        try:
            # It only joins attributes: grammar._value has checked that.
            return str(eval(text.code, {"__builtins__": {}}, variables))
        except (NameError, TypeError) as error:
            raise UnsupportedGameError(f"an expression has no value ({error})", where="TextWorld grammar") from None

    def _list(self, items: list[str], objects: Mapping[Typed, str], state: State) -> str:
        if not items:
            return self._call(Call("list_empty"), objects, state)
        if len(items) == 1:
            return items[0]
        separator = self._call(Call("list_separator"), objects, state)
        last = self._call(Call("list_last_separator"), objects, state)
        return separator.join(items[:-1]) + last + items[-1]


def load_game(path: Path) -> Game:
    """Compile a game file, or return it as compiled before.

    Args:
        path: The file.

    Returns:
        The game.

    Raises:
        GameFileError: The file is missing, torn, or no game.
    """
    try:
        status = path.stat()
        return _load_game(path, status.st_size, status.st_mtime_ns)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise GameFileError(f"the game file cannot be read ({error})", where=str(path)) from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise GameFileError(f"the file is no game ({type(error).__name__}: {error})", where=str(path)) from None


def forget() -> None:
    """Compile games again when they are next loaded; for measurements."""
    _load_game.cache_clear()


@lru_cache(maxsize=REMEMBERED_GAMES)
def _load_game(path: Path, size: int, changed: int) -> Game:  # noqa: ARG001 - a file that changed is another game
    return Game(json.loads(path.read_text(encoding="utf-8")))


@lru_cache(maxsize=8)
def _domain(text: str) -> Domain:
    return read_domain(text)


@lru_cache(maxsize=REMEMBERED_GAMES)
def _grammar(text: str) -> Grammar:
    return read_grammar(text)


def _entities(init: tuple[Atom, ...], kinds: Mapping[str, str]) -> dict[str, Entity]:
    """Name the objects as ALFWorld does: numbers within a class, the first id in order having the largest."""
    names = sorted({word for atom in init for word in atom[1:]})
    classes = {name: _class(name) for name in names if "_bar_" in name}
    left: dict[str, int] = {}
    for kind in classes.values():
        left[kind] = left.get(kind, 0) + 1
    entities: dict[str, Entity] = {}
    for name in names:
        if name in classes:
            kind = classes[name]
            entities[name] = Entity(name, kinds[name], f"{kind} {left[kind]}")
            left[kind] -= 1
        else:
            plain = name
            for code, char in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
                plain = plain.replace(code, char)
            entities[name] = Entity(name, kinds[name], f"{plain} ")
    return entities


def _class(name: str) -> str:
    return name.partition("_bar_")[0] + ("basin" if "basin" in name else "")
