"""A benchmark for the tests of tool use: a counter that a policy raises, and that misbehaves on request."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from agentbench_credit.env import Panel, Task

PANEL = Panel("counting", "test", 1, (Task("two", "2"), Task("three", "3")))
NUMBER = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = [
    {"name": name, "description": name, "parameters": NUMBER if name == "add" else NOTHING}
    for name in ("add", "sleep", "leave", "leave_once", "fail", "no_user", "mumble")
]


class Counting:
    """The host: raise a counter to the task's number, then say so."""

    def system(self) -> str:
        """Return the rules."""
        return "Count."

    def start(self, task: str) -> dict[str, Any]:
        """Begin at 0."""
        self.goal, self.count, self.over, self.said = int(task), 0, False, f"Count to {task}."
        return self._view()

    def act(self, calls: list[dict[str, Any]], text: str) -> dict[str, Any]:
        """Count, or misbehave."""
        self.said = f"The user heard: {text}"
        for call in calls:
            self.said = str(getattr(self, f"_{call['name']}")(**call["arguments"]))
        self.over = not calls
        return self._view()

    def invalid(self, message: str) -> dict[str, Any]:
        """Say it."""
        self.said = message
        return self._view()

    def reference(self) -> list[Any]:
        """Return what is left."""
        left = self.goal - self.count
        return [] if self.over or left < 0 else [*[self._one()] * left, "Done."]

    def gold(self) -> Any:
        """Return what is next."""
        return next(iter(self.reference()), None)

    def snapshot(self) -> str:
        """Return all."""
        return json.dumps([self.goal, self.count, self.over, self.said])

    def restore(self, snapshot: str) -> dict[str, Any]:
        """Go back."""
        self.goal, self.count, self.over, self.said = json.loads(snapshot)
        return self._view()

    def _one(self) -> list[dict[str, Any]]:
        return [{"name": "add", "arguments": {"by": 1}}]

    def _add(self, by: int) -> int:
        self.count += by
        return self.count

    def _sleep(self) -> None:
        self.count += 100
        time.sleep(60)

    def _leave(self) -> None:
        os._exit(3)

    def _leave_once(self) -> str:
        mark = Path(os.environ["AGENTBENCH_TAU2_USER"].removeprefix("openai:"))
        if not mark.exists():
            mark.touch()
            os._exit(3)
        return "back again"

    def _fail(self) -> None:
        self.count += 100
        raise KeyError("lost")

    def _no_user(self) -> None:
        from agentbench_credit.errors import ModelError

        raise ModelError("no answer")

    def _mumble(self) -> str:
        return "half \ud83d"

    def _view(self) -> dict[str, Any]:
        right = self.over and self.count == self.goal
        return {
            "observation": self.said,
            "tools": TOOLS,
            "state_key": f"{self.goal:02x}{self.count % 256:02x}{self.over:02x}",
            "reward": float(right),
            "terminated": self.over,
            "success": right,
            "scores": {"exact": float(right)} if self.over else {},
        }
