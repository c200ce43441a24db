"""Games that tests share: of the embedded panels, and one made to look like the official files of old."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_alfworld = pytest.mark.skipif(find_spec("alfworld") is None, reason="alfworld is not installed")
needs_textworld = pytest.mark.skipif(
    find_spec("alfworld") is None or find_spec("textworld") is None, reason="alfworld and textworld are not installed"
)


def old_game(folder: Path) -> Path:
    """Return a game as files of alfworld 0.3 have them: ``put … in/on …``, no help, distances, objects without a place.

    The mug is in two receptacles at once, the agent can slice, and moving on checks what is open.
    """
    from agentbench_credit.envs.alfworld.generate import Spec, game_text

    game = json.loads(game_text(Spec("pick_heat_then_place_in_recep", 7, "Mug", "CounterTop", True, 5), None))
    domain, grammar, problem = game["pddl_domain"], game["grammar"], game["pddl_problem"]
    domain = _cut(domain, "(:action help", "(:action") + ")\n"
    checks = (
        "(forall (?re - receptacle) (when (and (receptacleAtLocation ?re ?lEnd) "
        "(or (not (openable ?re)) (opened ?re))) (checked ?re)))"
    )
    domain = domain.replace("(increase (total-cost) 1)", checks, 1)
    grammar = _cut(grammar, "action help {", "action")
    for new, old in (
        ("move {o} to {r}", "put {o} in/on {r}"),
        ("You move the {o.name} to the {r.name}", "You put the {o.name} in/on the {r.name}"),
        ("You arrive at {r.name}.", "You arrive at {lend.name}."),
    ):
        assert new in grammar
        grammar = grammar.replace(new, old)
    lines = problem.splitlines()
    mug = next(line.split()[0] for line in lines if line.strip().startswith("Mug_bar"))
    places = [line.split()[0] for line in lines if line.endswith("- receptacle")]
    spots = [line.split()[0] for line in lines if line.endswith("- location")]
    distances = "".join(f"(= (distance {one} {other}) 3)\n" for one in spots for other in spots)
    facts = f"(inReceptacle {mug} {places[0]}) (isOn {mug})\n{distances}"
    problem = problem.replace(
        "(:objects\n", "(:objects\n Candle - object\n Sink_bar_1 - object\n CandleType - otype\n", 1
    )
    problem = problem.replace("(:init\n", f"(:init (objectType Sink_bar_1 CandleType) {facts}", 1)
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps({"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem, "solvable": True}))
    return path


def _cut(text: str, begin: str, following: str) -> str:
    """Take out a section up to the next one or the end."""
    start = text.index(begin)
    end = text.find(following, start + len(begin))
    return text[:start] + (text[end:] if end >= 0 else "")
