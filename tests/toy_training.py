"""A toy environment that a random model of a few thousand parameters can learn in seconds, and its training command.

``python tests/toy_training.py …`` is ``python -m agentbench_credit.train …`` with this environment registered.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentbench_credit.command import run_command
from agentbench_credit.env import ENVIRONMENTS, Environment, Info, Panel, Task

TASKS = tuple(Task(f"level-{i}", letter) for i, letter in enumerate("abcdef"))


class ToyEnv(gymnasium.Env[str, str]):
    """Two turns; a turn's reward is the share of the answer's characters that come before ``P`` in ASCII."""

    spec = EnvSpec("test/Toy-v0")

    def __init__(self, preset: str = "toy", split: str = "train") -> None:
        self.panel = load_panel(preset, split)
        self._letter, self._turn, self._total = "", 0, 0.0

    def _info(self, *, valid: bool = True) -> Info:
        return {
            "state_key": f"{self._letter}{self._turn}".encode(),
            "admissible_actions": None,
            "action_valid": valid,
            "task_id": "",
            "instruction": "Say.",
            "success": self._total > 1.0,
            "turn": self._turn,
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        assert options is not None
        self._letter, self._turn, self._total = self.panel[options["task"]].data, 0, 0.0
        return f"{self._letter}0", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        self._turn += 1
        reward = sum(char < "P" for char in action) / max(len(action), 1)
        self._total += reward
        return f"{self._letter}{self._turn}", reward, self._turn == 2, False, self._info(valid=bool(action))

    def reference(self) -> str | None:
        return self._letter + "!!"

    def expert_action(self) -> str | None:
        return "!!"

    def snapshot(self) -> object:
        return self._letter, self._turn, self._total

    def restore(self, snapshot: Any) -> tuple[str, Info]:
        self._letter, self._turn, self._total = snapshot
        return f"{self._letter}{self._turn}", self._info()


def load_panel(preset: str, split: str) -> Panel:
    """Return six tasks, each a letter to show."""
    return Panel(preset, split, 1, TASKS)


TOY = Environment("toy", "test/Toy-v0", f"{ToyEnv.__module__}:ToyEnv", ("toy",), load_panel)

if __name__ == "__main__":
    from agentbench_credit.train import main

    ENVIRONMENTS.register("toy", TOY)
    run_command(main)
