"""The engine that plays a game without TextWorld: the same texts, commands and facts, a hundred times faster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentbench_credit.envs.alfworld.atoms import bits
from agentbench_credit.envs.alfworld.engine import NOTHING_HAPPENS, Reply
from agentbench_credit.envs.alfworld.game import Game, load_game
from agentbench_credit.envs.alfworld.grounding import State
from agentbench_credit.envs.alfworld.pddl import Atom
from agentbench_credit.envs.alfworld.plan import plan
from agentbench_credit.errors import EnvironmentContractError

REMEMBERED_PLANS = 1024
"""States of a game whose plans are kept."""


@dataclass(frozen=True)
class Saved:
    """A state of the compiled engine: how it differs from the game's first state."""

    path: Path
    """The game."""
    changed: tuple[tuple[Atom, ...], tuple[Atom, ...], tuple[Atom, ...]]
    """For each part of a `State`, the atoms that are not as at first."""
    text: str
    """What the player was told when it was reached."""


class CompiledEngine:
    """Plays a game in this process; see `engine.Engine`. Instances share nothing that changes what they say."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._game: Game | None = None
        self._state = State(0, 0, 0)
        self._text = ""

    @property
    def game(self) -> Game:
        """The game that is played.

        Raises:
            EnvironmentContractError: Nothing has been started.
        """
        if self._game is None:
            raise EnvironmentContractError("no game has been started", mend="call start() first")
        return self._game

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    def start(self, path: Path) -> Reply:
        """Load a game and begin; see `engine.Engine.start`.

        Args:
            path: The file.

        Returns:
            The introduction.
        """
        self._game, self._path = load_game(path), path
        self._state, self._text = self._game.world.first, self._game.introduction
        return self._reply(self._text)

    def act(self, command: str) -> Reply:
        """Carry out a command; see `engine.Engine.act`.

        Args:
            command: The command.

        Returns:
            What the engine says.
        """
        game = self.game
        operator = game.node(self._state).operators.get(command.strip())
        if operator is None:
            self._text = NOTHING_HAPPENS
        else:
            self._state = operator.apply(self._state)
            self._text = game.feedback(operator, self._state)
        return self._reply(self._text)

    def plan(self) -> tuple[str, ...]:
        """Return the fewest commands that win from here; empty if it is won or the goal is none of ALFWorld's."""
        game, state = self.game, self._state
        commands = game.plans.get(state)
        if commands is None:
            commands = plan(game, state)
            # Whoever follows the plan asks again at every turn.
            for done in range(len(commands) + 1):
                game.plans[state] = commands[done:]
                if done < len(commands):
                    state = game.node(state).operators[commands[done]].apply(state)
            while len(game.plans) > REMEMBERED_PLANS:
                game.plans.popitem(last=False)
        return commands

    def snapshot(self) -> Saved:
        """Return the exact state; see `engine.Engine.snapshot`."""
        world = self.game.world
        assert self._path is not None
        differences = (now ^ first for now, first in zip(self._state, world.first, strict=True))
        holds, said, ceased = (
            tuple(sorted(world.atoms.listed[number] for number in bits(mask))) for mask in differences
        )
        return Saved(self._path, (holds, said, ceased), self._text)

    def restore(self, snapshot: object) -> Reply:
        """Go back to a state; see `engine.Engine.restore`.

        Args:
            snapshot: What `snapshot` returned, here or in another compiled engine.

        Returns:
            What the engine said when the state was reached.

        Raises:
            EnvironmentContractError: Not a snapshot of this engine.
        """
        if not isinstance(snapshot, Saved):
            raise EnvironmentContractError(f"cannot restore a {type(snapshot).__name__}", mend="give a Saved")
        if snapshot.path != self._path:
            self.start(snapshot.path)
        world = self.game.world
        masks = [sum(world.atoms.bit(atom) for atom in atoms) for atoms in snapshot.changed]
        self._state = State(*(first ^ mask for first, mask in zip(world.first, masks, strict=True)))
        self._text = snapshot.text
        return self._reply(self._text)

    def close(self) -> None:
        """Forget the game."""
        self._game, self._path = None, None

    def _reply(self, text: str) -> Reply:
        node = self.game.node(self._state)
        return Reply(text, node.admissible, node.won, self.game.world.facts(self._state))
