"""An environment of one's own: walk along a line to a door."""

from __future__ import annotations

import string
from typing import Any

import gymnasium

from agentbench_credit.env import ENVIRONMENTS, Environment, Info, Panel, Task

MOVES, TURNS = {"left": -1, "right": 1}, 12


def load_panel(preset: str, split: str) -> Panel:
    places = [f"{start} {door}" for start in range(12) for door in range(12) if abs(start - door) > 4]
    places = places[("train", "validation", "test").index(split) :: 3]
    return Panel(preset, split, 1, tuple(Task(f"{split}-{i}", place) for i, place in enumerate(places)))


class Corridor(gymnasium.Env[str, str]):
    observation_space = action_space = gymnasium.spaces.Text(100, charset=string.printable)

    def __init__(self, preset: str = "line", split: str = "train") -> None:
        self.panel = load_panel(preset, split)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        drawn = self.panel.tasks[int(self.np_random.integers(len(self.panel)))]
        task = self.panel[options["task"]] if options else drawn
        return self.restore((task.id, *map(int, task.data.split()), 0, True))

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        task, place, door, turn, _ = self.state
        over = place == door or turn == TURNS
        move = 0 if over else MOVES.get(action, 0)
        observation, info = self.restore((task, place + move, door, turn + (not over), move != 0))
        won = info["success"]
        return observation, float(won and not over), won, not won and info["turn"] == TURNS, info

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        self.state = task, place, door, turn, valid = snapshot
        info = {"state_key": f"{place} {door}".encode(), "admissible_actions": tuple(MOVES), "action_valid": valid}
        info |= {"task_id": task, "instruction": "Reach the door.", "success": place == door, "turn": turn}
        return f"{'' if valid else 'Say left or right. '}You are at {place}, the door is at {door}.", info

    def snapshot(self) -> object:
        return self.state

    def reference(self) -> str | None:
        _, place, door, *_ = self.state
        return " ".join(["right" if place < door else "left"] * abs(place - door)) or None

    def expert_action(self) -> str | None:
        return (self.reference() or "").split(" ")[0] or None


ENVIRONMENT = Environment("corridor", "example/Corridor-v0", "toy_env:Corridor", ("line",), load_panel)
ENVIRONMENTS.register("corridor", "toy_env:ENVIRONMENT")
