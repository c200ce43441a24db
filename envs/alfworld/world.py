"""A game as facts: what holds in a state, whether the goal does, what a query of the grammar matches.

Everything follows what fast-downward and TextWorld do, oddities included; README.md lists those.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from agentbench_credit.envs.alfworld.atoms import Atoms, as_text, bits
from agentbench_credit.envs.alfworld.engine import UnsupportedGameError
from agentbench_credit.envs.alfworld.grammar import Query
from agentbench_credit.envs.alfworld.grounding import Grounding, State
from agentbench_credit.envs.alfworld.pddl import Domain, Problem, Typed

MOST_GOALS = 20_000
"""Ways to reach the goal beyond which a game is not compiled."""


class World:
    """The facts of one game.

    Args:
        domain: Its domain.
        problem: Its problem.
    """

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self.atoms = Atoms(domain, problem)
        self.grounding = Grounding(self.atoms, domain)
        self.first = State(self.atoms.first, self.atoms.first, 0)
        self._goal = problem.goal

    @cached_property
    def goals(self) -> tuple[tuple[int, int], ...]:
        """The ways to reach the goal: bits of atoms that must hold, bits of atoms that must not.

        Raises:
            UnsupportedGameError: There are too many.
        """
        ways = itertools.chain.from_iterable(map(self.grounding.ways, self._goal))
        goals = tuple(dict.fromkeys(itertools.islice(ways, MOST_GOALS + 1)))
        if len(goals) > MOST_GOALS:
            raise UnsupportedGameError(f"there are more than {MOST_GOALS} ways to reach the goal", where="PDDL problem")
        return goals

    def won(self, state: State) -> bool:
        """Tell whether the goal holds."""
        holds = state.holds
        return any(holds & need == need and not holds & forbid for need, forbid in self.goals)

    def facts(self, state: State) -> frozenset[str]:
        """Return all facts as texts, as TextWorld keeps them."""
        texts = self.atoms.texts
        changing = [texts[number] for number in bits(state.said)]
        changing += [f"not_{texts[number]}" for number in bits(state.ceased)]
        return self._static_facts.union(changing)

    @cached_property
    def _static_facts(self) -> frozenset[str]:
        return frozenset(map(as_text, self.atoms.static))

    def is_static(self, predicate: str) -> bool:
        """Tell whether the facts of a predicate never change."""
        return predicate.removeprefix("not_") not in self.atoms.fluents

    def matches(self, query: Query, objects: Mapping[Typed, str], state: State) -> Iterator[dict[Typed, str]]:
        """Yield what a query's variables can stand for, in TextWorld's order.

        Args:
            query: The query.
            objects: What some variables stand for already; different variables stand for different objects.
            state: Whose facts are asked.

        Yields:
            All variables with their objects.
        """
        yield from self._matches(query.facts, dict(objects), state)

    def _matches(
        self, facts: tuple[tuple[str, tuple[Typed, ...]], ...], objects: dict[Typed, str], state: State
    ) -> Iterator[dict[Typed, str]]:
        if not facts:
            yield objects
            return
        name, variables = facts[0]
        for arguments in self._found(name, [objects.get(variable) for variable in variables], state):
            if len(arguments) != len(variables):
                what = f"{name} has {len(arguments)} arguments, not {len(variables)}"
                raise UnsupportedGameError(what, where="TextWorld grammar")
            extended = dict(objects)
            used = set(objects.values())
            for variable, found in zip(variables, arguments, strict=True):
                if variable in extended:
                    if extended[variable] != found:
                        break
                    continue
                if found in used or not self._fits(found, variable[1]):
                    break
                extended[variable] = found
                used.add(found)
            else:
                yield from self._matches(facts[1:], extended, state)

    def _fits(self, name: str, kind: str) -> bool:
        if self.atoms.kind(name) == kind:
            return True
        if self.atoms.is_a(name, kind):
            raise UnsupportedGameError(f"{name} is of a type below {kind}", where="TextWorld grammar")
        return False

    def _found(self, name: str, known: list[str | None], state: State) -> Iterable[tuple[str, ...]]:
        """Return the arguments of facts with some arguments known, sorted."""
        ceased = name.startswith("not_")
        predicate = name.removeprefix("not_") if ceased else name
        exact = tuple([word for word in known if word is not None])
        given = len(exact) == len(known)
        if predicate not in self.atoms.fluents:
            if ceased:
                return []
            if given:
                return [exact] if (predicate, *exact) in self.atoms.static else []
            return [atom[1:] for atom in self.atoms.find_static(predicate, known)]
        mask = state.ceased if ceased else state.said
        if given:
            return [exact] if mask & self.atoms.known_bit((predicate, *exact)) else []
        candidates = self.atoms.find_changing(predicate, known)
        return sorted(atom[1:] for atom in candidates if mask & self.atoms.known_bit(atom))
