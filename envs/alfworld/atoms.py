"""The atoms of one game: those that never change in an index, the others as numbered bits."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from agentbench_credit.envs.alfworld.pddl import Atom, Domain, Problem

_Index = dict[tuple[str, int, str], list[Atom]]
_ALL = (-1, "")


class Atoms:
    """Knows every atom that has been spoken of, and what is true for ever.

    Args:
        domain: The game's domain.
        problem: Its problem.
    """

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self._kinds = dict(domain.constants + problem.objects)
        self._above = {kind: _ancestors(kind, domain.parents) for kind in {*domain.parents, "object"}}
        self.of_kind: dict[str, list[str]] = defaultdict(list)
        for name, kind in self._kinds.items():
            for above in self._above.get(kind, {kind}):
                self.of_kind[above].append(name)
        self.fluents = frozenset(effect.atom[0] for action in domain.actions for effect in action.effects)
        self.static = frozenset(atom for atom in problem.init if atom[0] not in self.fluents)
        self._static: _Index = defaultdict(list)
        for atom in sorted(self.static):
            _add(self._static, atom)
        self.listed: list[Atom] = []
        self.texts: list[str] = []
        self._lock = threading.Lock()
        self._numbers: dict[Atom, int] = {}
        self._changing: _Index = defaultdict(list)
        self._bits: dict[str, int] = defaultdict(int)
        self.first = union(self.bit(atom) for atom in problem.init if atom[0] in self.fluents)

    def bit(self, atom: Atom) -> int:
        """Return the bit of an atom that can change, a new one if it has not been spoken of."""
        number = self._numbers.get(atom)
        return 1 << (self._list(atom) if number is None else number)

    def _list(self, atom: Atom) -> int:
        with self._lock:  # environments in several threads may share a game
            if atom not in self._numbers:
                number = len(self.listed)
                self.listed.append(atom)
                self.texts.append(as_text(atom))
                _add(self._changing, atom)
                self._bits[atom[0]] |= 1 << number
                self._numbers[atom] = number
            return self._numbers[atom]

    def known_bit(self, atom: Atom) -> int:
        """Return the bit of an atom, 0 if it has not been spoken of, so that it is true nowhere."""
        number = self._numbers.get(atom)
        return 0 if number is None else 1 << number

    def bits_of(self, predicate: str) -> int:
        """Return the bits of all atoms of a predicate."""
        return self._bits[predicate]

    def is_a(self, name: str, kind: str) -> bool:
        """Tell whether an object is of a type or of one below it."""
        own = self._kinds.get(name)
        return own is not None and (own == kind or kind in self._above.get(own, ()))

    def kind(self, name: str) -> str:
        """Return an object's type."""
        return self._kinds[name]

    def always(self, atom: Atom) -> bool:
        """Tell whether an atom that never changes is true."""
        return atom[1] == atom[2] if atom[0] == "=" else atom in self.static

    def find_static(self, predicate: str, known: Sequence[str | None]) -> Sequence[Atom]:
        """Return atoms that are always true, by predicate and the known arguments.

        Args:
            predicate: Their predicate.
            known: Their arguments, None where any will do.

        Returns:
            Atoms among which are all that fit, sorted.
        """
        return _shortest(self._static, predicate, known)

    def find_changing(self, predicate: str, known: Sequence[str | None]) -> Sequence[Atom]:
        """Return atoms that can change, as `find_static` does, in no special order."""
        return _shortest(self._changing, predicate, known)


def as_text(atom: Atom) -> str:
    """Return an atom as TextWorld writes it, such as ``"holds(agent1, mug_bar_…)"``."""
    return f"{atom[0]}({', '.join(atom[1:])})"


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, the lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def union(masks: Iterable[int]) -> int:
    """Return the bits that are set in any of the masks."""
    total = 0
    for mask in masks:
        total |= mask
    return total


def _add(index: _Index, atom: Atom) -> None:
    index[atom[0], *_ALL].append(atom)
    for place, word in enumerate(atom[1:]):
        index[atom[0], place, word].append(atom)


def _shortest(index: _Index, predicate: str, known: Sequence[str | None]) -> Sequence[Atom]:
    found: Sequence[Atom] | None = None
    for place, word in enumerate(known):
        if word is not None:
            atoms = index.get((predicate, place, word), ())
            if found is None or len(atoms) < len(found):
                found = atoms
    return index.get((predicate, *_ALL), ()) if found is None else found


def _ancestors(kind: str, parents: dict[str, str]) -> frozenset[str]:
    found = {kind, "object"}
    while (kind := parents.get(kind, "object")) not in found:
        found.add(kind)
    return frozenset(found)
