"""Reads the part of PDDL that ALFRED's domain and problems use, the way fast-downward reads it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agentbench_credit.envs.alfworld.engine import GameFileError, UnsupportedGameError

Tree: TypeAlias = "str | list[Tree]"
Atom = tuple[str, ...]
"""Predicate and arguments."""
Typed = tuple[str, str]
"""Name and type of an object or a variable; variables begin with ``?``."""


@dataclass(frozen=True)
class Clause:
    """A conjunction under existential quantifiers."""

    variables: tuple[Typed, ...]
    """The quantified variables, none of which has a name that stands for something else outside."""
    positive: tuple[Atom, ...]
    """Atoms that must hold."""
    negative: tuple[Atom, ...]
    """Atoms that must not hold."""

    def __add__(self, other: Clause) -> Clause:
        """Return the conjunction of both."""
        return Clause(self.variables + other.variables, self.positive + other.positive, self.negative + other.negative)


@dataclass(frozen=True)
class Effect:
    """What an action does to one atom."""

    variables: tuple[Typed, ...]
    """Universally quantified variables."""
    condition: tuple[Clause, ...] | None
    """It happens if one of them holds; None if always."""
    atom: Atom
    """The atom."""
    adds: bool
    """Whether the atom comes to hold or ceases to."""


@dataclass(frozen=True)
class Action:
    """An action schema."""

    name: str
    """Lower case, as everything here."""
    parameters: tuple[Typed, ...]
    """Its parameters."""
    precondition: tuple[Clause, ...]
    """One of them must hold."""
    effects: tuple[Effect, ...]
    """What it does, costs left out."""


@dataclass(frozen=True)
class Domain:
    """Types and actions."""

    parents: dict[str, str]
    """By type, the type above it; ``"object"`` is above all."""
    constants: tuple[Typed, ...]
    """Objects of every problem."""
    actions: tuple[Action, ...]
    """The actions in their order."""


@dataclass(frozen=True)
class Problem:
    """Objects, first state and goal."""

    objects: tuple[Typed, ...]
    """The objects."""
    init: tuple[Atom, ...]
    """What holds at first; numbers left out."""
    goal: tuple[Clause, ...]
    """One of them must hold."""


def read_domain(text: str) -> Domain:
    """Read a domain.

    Args:
        text: The file.

    Returns:
        The domain.

    Raises:
        UnsupportedGameError: It uses something that is not known here.
    """
    parents: dict[str, str] = {}
    constants: tuple[Typed, ...] = ()
    actions: list[Action] = []
    for section in _lists(_define(text)[1:]):
        head, rest = section[0], section[1:]
        if head == ":types":
            parents = dict(_typed(rest))
        elif head == ":constants":
            constants = tuple(_typed(rest))
        elif head == ":action":
            actions.append(_action(rest))
        elif head not in ("domain", ":requirements", ":predicates", ":functions"):
            raise UnsupportedGameError(f"the domain has a section {head}", where="PDDL domain")
    return Domain(parents, constants, tuple(actions))


def read_problem(text: str) -> Problem:
    """Read a problem.

    Args:
        text: The file.

    Returns:
        The problem.

    Raises:
        UnsupportedGameError: It uses something that is not known here.
        GameFileError: It has no goal.
    """
    objects: tuple[Typed, ...] = ()
    init: list[Atom] = []
    goal: tuple[Clause, ...] | None = None
    for section in _lists(_define(text)[1:]):
        head, rest = section[0], section[1:]
        if head == ":objects":
            objects = tuple(_typed(rest))
        elif head == ":init":
            init += [_atom(fact) for fact in rest if fact[0] != "="]
        elif head == ":goal":
            goal = _clauses(rest[0])
        elif head not in ("problem", ":domain", ":metric", ":requirements"):
            raise UnsupportedGameError(f"the problem has a section {head}", where="PDDL problem")
    if goal is None:
        raise GameFileError("the problem has no goal", where="PDDL problem")
    return Problem(objects, tuple(init), goal)


def check_arguments(domain: Domain, problem: Problem) -> None:
    """Do nothing if every predicate always has the same number of arguments.

    Args:
        domain: A domain.
        problem: A problem of it.

    Raises:
        GameFileError: One has not.
    """
    effects = [effect for action in domain.actions for effect in action.effects]
    conditions = [action.precondition for action in domain.actions] + [effect.condition or () for effect in effects]
    clauses = itertools.chain(problem.goal, *conditions)
    atoms = itertools.chain.from_iterable(clause.positive + clause.negative for clause in clauses)
    counts: dict[str, int] = {}
    for name, *arguments in itertools.chain(problem.init, atoms, (effect.atom for effect in effects)):
        if counts.setdefault(name, len(arguments)) != len(arguments):
            what = f"{name} has {counts[name]} arguments and elsewhere {len(arguments)}"
            raise GameFileError(what, where="PDDL")


def _define(text: str) -> list[Tree]:
    """Return the contents of ``(define …)`` as nested lists of lower-case words."""
    stack: list[list[Tree]] = [[]]
    for line in text.split("\n"):
        words = line.partition(";")[0].replace("(", " ( ").replace(")", " ) ").replace("?", " ?").lower().split()
        for word in words:
            if word == "(":
                stack.append([])
            elif word == ")":
                if len(stack) == 1:
                    raise GameFileError("a bracket is closed that was not opened", where="PDDL")
                inner = stack.pop()
                stack[-1].append(inner)
            else:
                stack[-1].append(word)
    if len(stack) != 1 or len(stack[0]) != 1 or stack[0][0][:1] != ["define"]:
        raise GameFileError("this is no whole (define …)", where="PDDL")
    (whole,) = stack[0]
    assert isinstance(whole, list)
    return whole


def _lists(trees: Sequence[Tree]) -> Iterator[list[Tree]]:
    for tree in trees:
        if not isinstance(tree, list) or not tree:
            raise UnsupportedGameError(f"{tree!r} is not understood", where="PDDL")
        yield tree


def _atom(tree: Tree) -> Atom:
    words = tuple(word for word in tree if isinstance(word, str))
    if isinstance(tree, str) or not words or len(words) != len(tree) or words[0] in (">", "<", ">=", "<="):
        raise UnsupportedGameError(f"{tree!r} is not understood", where="PDDL")
    return words


def _typed(trees: Sequence[Tree]) -> Iterator[Typed]:
    """Yield names with the type that follows the next dash, ``object`` if none does."""
    names: list[str] = []
    words = iter(trees)
    for word in words:
        if word == "-":
            kind = next(words, None)
            if not isinstance(kind, str):
                raise UnsupportedGameError(f"the type {kind!r} is not understood", where="PDDL")
            yield from ((name, kind) for name in names)
            names = []
        elif isinstance(word, str):
            names.append(word)
        else:
            raise UnsupportedGameError(f"{word!r} is not understood", where="PDDL")
    yield from ((name, "object") for name in names)


def _action(rest: Sequence[Tree]) -> Action:
    name = rest[0]
    fields = dict(zip(map(str, rest[1::2]), rest[2::2], strict=True))
    if not isinstance(name, str) or not fields.keys() <= {":parameters", ":precondition", ":effect"}:
        raise UnsupportedGameError(f"the action {name!r} is not understood", where="PDDL domain")
    precondition = fields.get(":precondition", [])
    return Action(
        name,
        tuple(_typed(fields.get(":parameters", []))),
        _clauses(precondition) if precondition else (Clause((), (), ()),),
        tuple(_effects(fields.get(":effect", []), (), None)),
    )


_fresh = itertools.count()


def _clauses(tree: Tree, negated: bool = False, names: dict[str, str] | None = None) -> tuple[Clause, ...]:
    """Return a condition as a disjunction of clauses; quantified variables get names of their own."""
    names = names or {}
    head = tree[0] if tree else None
    if isinstance(tree, str) or not isinstance(head, str):
        raise UnsupportedGameError(f"the condition {tree!r} is not understood", where="PDDL")
    if head == "not":
        return _clauses(tree[1], not negated, names)
    if head == "imply":
        return _clauses(["or", ["not", tree[1]], tree[2]], negated, names)
    if head in ("and", "or"):
        parts = [_clauses(part, negated, names) for part in tree[1:]]
        if (head == "or") != negated:
            return tuple(itertools.chain.from_iterable(parts))
        return tuple(sum(choice, Clause((), (), ())) for choice in itertools.product(*parts))
    if head in ("exists", "forall"):
        if (head == "forall") != negated:
            raise UnsupportedGameError("a condition says something of all objects", where="PDDL")
        variables = list(_typed(tree[1]))
        names = names | {name: f"{name}~{next(_fresh)}" for name, _ in variables}
        own = Clause(tuple((names[name], kind) for name, kind in variables), (), ())
        return tuple(own + clause for clause in _clauses(tree[2], negated, names))
    atom = _atom(tree)
    atom = (atom[0], *(names.get(word, word) for word in atom[1:]))
    return (Clause((), (), (atom,)) if negated else Clause((), (atom,), ()),)


def _effects(tree: Tree, variables: tuple[Typed, ...], condition: tuple[Clause, ...] | None) -> Iterator[Effect]:
    head = tree[0] if tree else "and"
    if head == "and":
        for part in tree[1:]:
            yield from _effects(part, variables, condition)
    elif head == "forall":
        yield from _effects(tree[2], variables + tuple(_typed(tree[1])), condition)
    elif head == "when":
        if condition is not None:
            raise UnsupportedGameError("a conditional effect stands in another", where="PDDL domain")
        yield from _effects(tree[2], variables, _clauses(tree[1]))
    elif head == "not":
        yield Effect(variables, condition, _atom(tree[1]), False)
    elif head not in ("increase", "assign", "decrease"):
        yield Effect(variables, condition, _atom(tree), True)
