"""The real engine, in a process of its own: ``python -m agentbench_credit.envs.alfworld.textworld_worker``.

TextWorld with fast-downward is not thread-safe, overwrites ``sys.argv`` and swaps ``sys.stdout``; here it harms nobody.
Requests and answers are lines of JSON on standard input and output.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TextIO

REMEMBERED_GAMES = 8
"""Games whose translation for the planner is kept; a translation takes most of the time of a start."""


class Game:
    """TextWorld's environment with ALFWorld's names, texts and commands as they come."""

    def __init__(self) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import PddlEnv

        _remember()
        self._inner = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
        self._env = AlfredInfos(AlfredDemangler(self._inner, shuffle=False))

    def start(self, path: str) -> dict[str, Any]:
        """Load a game and begin."""
        self._env.load(path)
        return self._answer(self._env.reset())

    def act(self, command: str) -> dict[str, Any]:
        """Carry out a command."""
        return self._answer(self._env.step(command)[0])

    def plan(self) -> list[str]:
        """Return the commands of a plan by fast-downward, empty if it finds none."""
        state: Any = self._inner._pddl_state
        return list(state.replan(self._inner._entity_infos))

    def _answer(self, state: Any) -> dict[str, Any]:
        facts = (f"{fact.name}({', '.join(variable.name for variable in fact.arguments)})" for fact in state["_facts"])
        return {
            "text": state.feedback,
            "admissible": list(state["admissible_commands"]),
            "won": bool(state["won"]),
            "facts": sorted(facts),
        }


def _remember() -> None:
    """Keep the results of TextWorld's two slow functions, which depend on their arguments only."""
    import fast_downward
    from textworld.envs.pddl import textgen

    translations: OrderedDict[tuple[str, str, bool], Any] = OrderedDict()
    translate: Callable[..., Any] = fast_downward.pddl2sas

    def pddl2sas(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        key = (domain, problem, optimize)
        if key not in translations:
            translations[key] = translate(domain, problem, verbose=verbose, optimize=optimize)
            if len(translations) > 2 * REMEMBERED_GAMES:
                translations.popitem(last=False)
        return translations[key]

    parsed: dict[str, Any] = {}
    parse: Callable[..., Any] = textgen._parse_and_convert

    def parse_and_convert(text: str, **options: Any) -> Any:
        if text not in parsed:
            parsed[text] = parse(text, **options)
        return copy.deepcopy(parsed[text])

    fast_downward.pddl2sas = pddl2sas
    textgen._parse_and_convert = parse_and_convert


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until their stream ends.

    Args:
        requests: Lines ``[method, argument…]``.
        answers: Takes ``{"answer": …}`` or ``{"error": …}`` for each.
    """
    game = Game()
    for line in requests:
        method, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(game, method)(*arguments)}
        except (Exception, SystemExit) as error:  # the planner's translation leaves by SystemExit
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Serve on the streams that the process was started with; whatever the engine prints goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
