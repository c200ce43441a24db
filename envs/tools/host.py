"""What a tool-use benchmark does in its own process, and what it says to the environment."""

from __future__ import annotations

from typing import Any, NotRequired, Protocol, TypedDict

from agentbench_credit.policy.tool_schema import Call as Call


class View(TypedDict):
    """What there is to see after a start, a turn, or a restore."""

    observation: str
    """What the policy reads next: the user's message, or the tools' results."""
    tools: list[dict[str, Any]]
    """JSON schemas of the tools that exist now: name, description, parameters."""
    accepts: NotRequired[list[dict[str, Any]]]
    """What calls are held against where that is not quite the tools as shown."""
    state_key: str
    """Hash of all that later results and the score depend on, in hexadecimal digits."""
    reward: float
    """Reward of the turn."""
    terminated: bool
    """Whether the conversation ended."""
    success: bool
    """Whether the benchmark's own scorer accepts it."""
    scores: dict[str, float]
    """The benchmark's own metrics; empty before the end."""


def tool_responses(results: list[str]) -> str:
    """Return results of calls, in their order, as the observation that the policy reads."""
    return "\n".join(f"<tool_response>\n{result}\n</tool_response>" for result in results)


class Host(Protocol):
    """One conversation of a benchmark; lives in a process of its own and is called through `service.Service`."""

    def system(self) -> str:
        """Return what the benchmark tells the policy of the started task beforehand, such as an airline's rules."""
        ...

    def start(self, task: str) -> View:
        """Begin a task, given its data as the panel holds it."""
        ...

    def act(self, calls: list[Call], text: str) -> View:
        """Execute calls in order and return their results; without calls, the text is said to the user."""
        ...

    def invalid(self, message: str) -> View:
        """Take note of a turn whose calls could not be understood; the tools' state stays as it is."""
        ...

    def gold(self) -> list[Call] | str | None:
        """Return what a perfect policy does next: calls, a text for the user, or None if it is not known any more."""
        ...

    def reference(self) -> list[list[Call] | str]:
        """Return all that is left to do from here, in order: what `gold` will say, turn by turn."""
        ...

    def snapshot(self) -> str:
        """Return the exact state as text."""
        ...

    def restore(self, snapshot: str) -> View:
        """Go back to a state, also one of another process."""
        ...
