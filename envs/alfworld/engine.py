"""What plays a game file: the contract that the real TextWorld engine and the compiled one both keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentbench_credit.errors import AgentBenchError

NOTHING_HAPPENS = "Nothing happens."
"""The answer to a command that is not admissible; it changes nothing."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the engine says after a start or a command."""

    text: str
    """What the player reads."""
    admissible: tuple[str, ...]
    """Commands that are understood now, sorted, each once."""
    won: bool
    """Whether the goal holds."""
    facts: frozenset[str]
    """All facts, such as ``"opened(fridge_bar_…)"``; ``not_…`` where the engine noted that one ceased to hold."""


class Engine(Protocol):
    """Plays one game at a time."""

    def start(self, path: Path) -> Reply:
        """Load a ``game.tw-pddl`` and begin.

        Args:
            path: The file.

        Returns:
            The introduction.

        Raises:
            GameFileError: The file cannot be read.
            UnsupportedGameError: This engine cannot play it.
            EngineDiedError: The engine's process ended or hangs.
        """
        ...

    def act(self, command: str) -> Reply:
        """Carry out a command; one that is not admissible is answered with `NOTHING_HAPPENS`."""
        ...

    def plan(self) -> tuple[str, ...]:
        """Return commands that win from the current state; empty if it is won or none are known."""
        ...

    def snapshot(self) -> object:
        """Return the exact state: immutable, picklable, good for any engine of the same kind."""
        ...

    def restore(self, snapshot: object) -> Reply:
        """Go back to a state; returns what the engine said when it was reached."""
        ...

    def close(self) -> None:
        """Free what the engine holds; it can be started again."""
        ...


class GameFileError(AgentBenchError):
    """A game file is missing, torn, or no game."""


class UnsupportedGameError(AgentBenchError):
    """A game uses something that the compiled engine does not know; the real engine plays it."""


class EngineDiedError(AgentBenchError):
    """The process of the real engine ended or no longer answers; the next start has a new one."""
