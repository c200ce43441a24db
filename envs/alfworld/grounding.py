"""Operators: what the actions of a domain can do in a state, grounded where the agent comes to be."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentbench_credit.envs.alfworld.atoms import Atoms, bits, union
from agentbench_credit.envs.alfworld.engine import UnsupportedGameError
from agentbench_credit.envs.alfworld.pddl import Action, Atom, Clause, Domain, Effect, Typed

CASES = 5
"""Cases from which the best way to ground a schema is estimated."""

Binding = dict[str, str]
"""Objects by variable."""


class State(NamedTuple):
    """Three sets of atoms, as bits."""

    holds: int
    """What is true."""
    said: int
    """What TextWorld keeps as facts for its texts; it takes conditional effects as if they always happened."""
    ceased: int
    """What it keeps as ``not_…`` facts: whatever an operator made false and none made true again."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A ground action."""

    action: str
    """Name of the action."""
    objects: dict[Typed, str]
    """Its objects by parameter."""
    adds: int
    """Atoms that come to hold."""
    deletes: int
    """Atoms that cease to."""
    maybe: tuple[tuple[int, int, int, bool], ...]
    """Conditional effects: atoms needed, atoms forbidden, atom, whether it is added."""
    says: int
    """Atoms that TextWorld is told have come to hold."""
    unsays: int
    """Atoms that TextWorld is told have ceased to."""

    def apply(self, state: State) -> State:
        """Return the state after it."""
        adds, deletes = self.adds, self.deletes
        for need, forbid, atom, added in self.maybe:
            if state.holds & need == need and not state.holds & forbid:
                adds, deletes = (adds | atom, deletes) if added else (adds, deletes | atom)
        return State(
            state.holds & ~deletes | adds,
            state.said & ~self.unsays | self.says,
            state.ceased & ~self.says | self.unsays,
        )


@dataclass(frozen=True, slots=True)
class _Schema:
    """A clause sorted by what can change."""

    kinds: dict[str, str]
    """Type of every variable."""
    fixed: tuple[Atom, ...]
    """Atoms that hold for ever or never."""
    never: tuple[Atom, ...]
    """Atoms of the same sort that must not hold."""
    needs: tuple[Atom, ...]
    """Atoms that can change and must hold."""
    bars: tuple[Atom, ...]
    """Atoms that can change and must not hold."""
    inner: tuple[str, ...]
    """The variables that the unchanging atoms are about."""
    outer: tuple[str, ...]
    """The other variables."""
    solutions: dict[tuple[str | None, ...], list[Binding]]
    """Remembered ways to satisfy the unchanging atoms, by what was given of the inner variables."""


@dataclass(slots=True)
class _Candidate:
    """An operator that is built when it first applies; one that changes nothing is never built."""

    need: int
    forbid: int
    action: Action
    binding: Binding
    operator: Operator | None = None
    idle: bool = False


class Grounding:
    """Finds the operators that apply, and the ways to satisfy a clause.

    Args:
        atoms: The game's atoms.
        domain: Its domain.
    """

    def __init__(self, atoms: Atoms, domain: Domain) -> None:
        self._atoms = atoms
        self._watched: dict[str, list[tuple[Action, _Schema, Atom]]] = defaultdict(list)
        self._of_atom: dict[int, tuple[_Candidate, ...]] = {}
        free: list[tuple[Action, _Schema]] = []
        for action in domain.actions:
            for clause in action.precondition:
                schema = self._schema(clause, action.parameters)
                watch = self._watch(schema)
                if watch is None:
                    free.append((action, schema))
                else:
                    self._watched[watch[0]].append((action, schema, watch))
        self._adders: dict[str, list[tuple[_Schema, Effect, tuple[_Schema, ...]]]] = defaultdict(list)
        for action in domain.actions:
            for effect in action.effects:
                if effect.adds:
                    conditions = tuple(self._schema(clause, effect.variables) for clause in effect.condition or ())
                    for clause in action.precondition:
                        schema = self._schema(clause, action.parameters + effect.variables)
                        self._adders[effect.atom[0]].append((schema, effect, conditions))
        self._reached = {atoms.listed[number] for number in bits(atoms.first)}
        self._never_reached: set[Atom] = set()
        self._always = tuple(one for action, schema in free for one in self._candidates(action, schema, {}))

    def operators(self, state: State) -> Iterator[Operator]:
        """Yield the operators that apply."""
        holds = state.holds
        watched = holds & union(self._atoms.bits_of(name) for name in self._watched)
        for candidate in itertools.chain(self._always, *map(self._watching, bits(watched))):
            if holds & candidate.need == candidate.need and not holds & candidate.forbid and not candidate.idle:
                if candidate.operator is None:
                    candidate.operator = self._operator(candidate)
                    candidate.idle = not (candidate.operator.says or candidate.operator.unsays)
                    if candidate.idle:  # as fast-downward, which drops what changes nothing
                        continue
                yield candidate.operator

    def ways(self, clause: Clause) -> Iterator[tuple[int, int]]:
        """Yield the ways to satisfy a clause: bits of atoms that must hold, bits of atoms that must not."""
        for need, forbid, _ in self._masks(self._schema(clause, ()), {}):
            yield need, forbid

    def _schema(self, clause: Clause, parameters: tuple[Typed, ...]) -> _Schema:
        fluents = self._atoms.fluents
        kinds = dict(parameters + clause.variables)
        fixed = tuple(atom for atom in clause.positive if atom[0] not in fluents)
        never = tuple(atom for atom in clause.negative if atom[0] not in fluents)
        spoken = {word for atom in fixed + never for word in atom[1:] if word.startswith("?")}
        return _Schema(
            kinds,
            fixed,
            never,
            needs=tuple(atom for atom in clause.positive if atom[0] in fluents),
            bars=tuple(atom for atom in clause.negative if atom[0] in fluents),
            inner=tuple(sorted(spoken)),
            outer=tuple(name for name in kinds if name not in spoken),
            solutions={},
        )

    def _watch(self, schema: _Schema) -> Atom | None:
        """Return the atom whose truth decides that a schema is looked at: the one that leaves the fewest choices."""
        return min(schema.needs, key=lambda atom: self._choices(schema, atom), default=None)

    def _choices(self, schema: _Schema, atom: Atom) -> float:
        """Estimate in how many ways a schema can be grounded when an atom is given, from a few cases."""
        spoken = {word for other in (*schema.fixed, atom) for word in other[1:]}
        free = [len(self._atoms.of_kind.get(kind, ())) for name, kind in schema.kinds.items() if name not in spoken]
        cases = [self._atoms.listed[number][1:] for number in bits(self._atoms.first & self._atoms.bits_of(atom[0]))]
        if len(cases) < CASES:  # what is true at first is no guide then
            names = [self._atoms.of_kind.get(schema.kinds.get(word, "")) or [word] for word in atom[1:]]
            cases = [tuple(some[number * len(some) // CASES] for some in names) for number in range(CASES)]
        counts = []
        for case in cases[:: max(1, len(cases) // CASES)]:
            binding: Binding = {}
            if all(_unify(binding, word, name) for word, name in zip(atom[1:], case, strict=True)):
                inner = {name: value for name, value in binding.items() if name in schema.inner}
                counts.append(len(self._solve(schema, inner)))
        return math.prod(free) * sum(counts) / max(1, len(counts))

    def _watching(self, number: int) -> tuple[_Candidate, ...]:
        if number not in self._of_atom:
            atom = self._atoms.listed[number]
            found: list[_Candidate] = []
            for action, schema, watch in self._watched[atom[0]]:
                binding: Binding = {}
                if all(_unify(binding, word, name) for word, name in zip(watch[1:], atom[1:], strict=True)):
                    found += self._candidates(action, schema, binding)
            self._of_atom[number] = tuple(found)
        return self._of_atom[number]

    def _candidates(self, action: Action, schema: _Schema, binding: Binding) -> Iterator[_Candidate]:
        for need, forbid, full in self._masks(schema, binding):
            yield _Candidate(need, forbid, action, full)

    def _operator(self, candidate: _Candidate) -> Operator:
        action, need, forbid = candidate.action, candidate.need, candidate.forbid
        adds = deletes = 0
        maybe: list[tuple[int, int, int, bool]] = []
        for effect in action.effects:
            for own in self._assignments(effect.variables, candidate.binding):
                atom = _ground(effect.atom, own)
                if not (effect.adds or self._atoms.known_bit(atom) & need or self._can_hold(atom)):
                    continue
                bit = self._atoms.bit(atom)
                if effect.condition is not None:
                    maybe += self._conditional(effect, bit, need, forbid, own)
                elif effect.adds:
                    adds |= bit
                else:
                    deletes |= bit
        # An atom that is surely added is not deleted; one that must be so already is not changed.
        maybe = [entry for entry in maybe if not entry[2] & adds]
        adds, deletes = adds & ~need, deletes & ~adds & ~forbid
        unsays = deletes | union(bit for _, _, bit, added in maybe if not added)
        says = (adds | union(bit for _, _, bit, added in maybe if added)) & ~unsays
        objects = {(name[1:], kind): candidate.binding[name] for name, kind in action.parameters}
        return Operator(action.name, objects, adds, deletes, tuple(maybe), says, unsays)

    def _conditional(
        self, effect: Effect, bit: int, need: int, forbid: int, binding: Binding
    ) -> Iterator[tuple[int, int, int, bool]]:
        if bit & (need if effect.adds else forbid):
            return
        for clause in effect.condition or ():
            schema = self._schema(clause, effect.variables)
            for wants, bars, full in self._masks(schema, binding):
                possible = all(self._can_hold(_ground(atom, full)) for atom in schema.needs)
                if possible and not (wants & forbid or bars & need):
                    yield wants, bars, bit, effect.adds

    def _can_hold(self, atom: Atom) -> bool:
        """Tell whether an atom can come to hold if nothing is ever deleted; fast-downward forgets all others."""
        while atom not in self._reached and atom not in self._never_reached:
            before = len(self._reached)
            visited: set[Atom] = set()
            if not self._reach(atom, visited) and len(self._reached) == before:
                self._never_reached |= visited
        return atom in self._reached

    def _reach(self, atom: Atom, visited: set[Atom]) -> bool:
        """Look for a way to an atom past those visited; what was missed is found when it is looked for again."""
        if atom in self._reached:
            return True
        if atom in visited or atom in self._never_reached:
            return False
        visited.add(atom)
        for schema, effect, conditions in self._adders[atom[0]]:
            binding: Binding = {}
            if not all(_unify(binding, word, name) for word, name in zip(effect.atom[1:], atom[1:], strict=True)):
                continue
            for full in self._bindings(schema, binding):
                needs = [_ground(need, full) for need in schema.needs]
                if all(self._reach(need, visited) for need in needs) and (
                    effect.condition is None or any(self._reach_any(one, full, visited) for one in conditions)
                ):
                    self._reached.add(atom)
                    return True
        return False

    def _reach_any(self, condition: _Schema, binding: Binding, visited: set[Atom]) -> bool:
        ways = self._bindings(condition, binding)
        return any(all(self._reach(_ground(need, full), visited) for need in condition.needs) for full in ways)

    def _assignments(self, variables: tuple[Typed, ...], binding: Binding) -> Iterator[Binding]:
        if not variables:
            yield binding
            return
        for choice in itertools.product(*(self._atoms.of_kind.get(kind, ()) for _, kind in variables)):
            yield binding | {name: value for (name, _), value in zip(variables, choice, strict=True)}

    def _masks(self, schema: _Schema, binding: Binding) -> Iterator[tuple[int, int, Binding]]:
        """Yield need, forbid and objects for every way to satisfy the part of a clause that never changes."""
        need, needs = self._settled(schema.needs, binding)
        forbid, bars = self._settled(schema.bars, binding)
        bit = self._atoms.bit
        for full in self._bindings(schema, binding):
            yield (
                union([need, *[bit(_ground(atom, full)) for atom in needs]]),
                union([forbid, *[bit(_ground(atom, full)) for atom in bars]]),
                full,
            )

    def _settled(self, atoms: tuple[Atom, ...], binding: Binding) -> tuple[int, list[Atom]]:
        """Return the bits of the atoms that a binding settles, and the other atoms."""
        open_ = [atom for atom in atoms if any(word[0] == "?" and word not in binding for word in atom[1:])]
        return union([self._atoms.bit(_ground(atom, binding)) for atom in atoms if atom not in open_]), open_

    def _bindings(self, schema: _Schema, binding: Binding) -> Iterator[Binding]:
        kinds = schema.kinds
        if any(name in kinds and not self._atoms.is_a(value, kinds[name]) for name, value in binding.items()):
            return
        key = tuple([binding.get(name) for name in schema.inner])
        solutions = schema.solutions.get(key)
        if solutions is None:
            given = {name: value for name, value in zip(schema.inner, key, strict=True) if value is not None}
            solutions = schema.solutions[key] = self._solve(schema, given)
        left = tuple((name, kinds[name]) for name in schema.outer if name not in binding)
        for solution in solutions:
            if left:
                yield from self._assignments(left, binding | solution)
            else:
                yield binding | solution

    def _solve(self, schema: _Schema, given: Binding) -> list[Binding]:
        """Return all bindings of the inner variables that satisfy the unchanging atoms, joined from the rarest on."""
        found, left = [given], list(schema.fixed)
        while left and found:
            atom = min(left, key=lambda one: len(self._fitting(one, found[0])))
            left.remove(atom)
            found = [full for binding in found for full in self._joined(schema, atom, binding)]
        kinds = schema.kinds
        if found:
            free = tuple((name, kinds[name]) for name in schema.inner if name in kinds and name not in found[0])
            found = [full for binding in found for full in self._assignments(free, binding)]
        never, always = schema.never, self._atoms.always
        return [full for full in found if not any(always(_ground(atom, full)) for atom in never)]

    def _fitting(self, atom: Atom, binding: Binding) -> Sequence[Atom]:
        """Return what an unchanging atom may stand for."""
        known = [binding.get(word) if word[0] == "?" else word for word in atom[1:]]
        if None not in known:
            whole = _ground(atom, binding)
            return (whole,) if self._atoms.always(whole) else ()
        if atom[0] == "=":
            raise UnsupportedGameError("an equation defines a variable", where="PDDL")
        return self._atoms.find_static(atom[0], known)

    def _joined(self, schema: _Schema, atom: Atom, binding: Binding) -> Iterator[Binding]:
        for candidate in self._fitting(atom, binding):
            full = dict(binding)
            for word, name in zip(atom[1:], candidate[1:], strict=True):
                if not _unify(full, word, name):
                    break
                if word not in binding and word in schema.kinds and not self._atoms.is_a(name, schema.kinds[word]):
                    break
            else:
                yield full


def _unify(binding: Binding, word: str, name: str) -> bool:
    return binding.setdefault(word, name) == name if word[0] == "?" else word == name


def _ground(atom: Atom, binding: Binding) -> Atom:
    return (atom[0], *[binding.get(word, word) for word in atom[1:]])
