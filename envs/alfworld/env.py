"""ALFWorld as a text environment."""

from __future__ import annotations

import hashlib
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import gymnasium
from gymnasium import spaces

from agentbench_credit.env import Info, Panel, chosen_task
from agentbench_credit.envs.alfworld.commands import understand
from agentbench_credit.envs.alfworld.compiled import CompiledEngine
from agentbench_credit.envs.alfworld.engine import NOTHING_HAPPENS, Engine, EngineDiedError, Reply, UnsupportedGameError
from agentbench_credit.envs.alfworld.games import game_file, load_panel
from agentbench_credit.envs.alfworld.presets import TURNS, check_preset
from agentbench_credit.envs.alfworld.textworld_engine import TextWorldEngine
from agentbench_credit.errors import EnvironmentContractError

ENGINES = ("auto", "compiled", "textworld")
"""``"auto"`` is the compiled one; a game that it does not support is played by the real one, which is announced."""

_PRINTABLE = "".join(map(chr, range(32, 127)))
_LONGEST_OBSERVATION, _LONGEST_ACTION = 20_000, 200
_HOW = (
    "Answer with one command: go to (receptacle), open (receptacle), close (receptacle), "
    "take (object) from (receptacle), move (object) to (receptacle), use (object), heat (object) with (receptacle), "
    "clean (object) with (receptacle), cool (object) with (receptacle), slice (object) with (object), "
    "examine (something), look, inventory"
)


@dataclass(frozen=True)
class Snapshot:
    """The exact state of an episode; the generator that draws tasks is not part of it."""

    task_id: str
    """The task that is played."""
    state: object
    """The engine's state."""
    told: str
    """What the player read when the state was reached."""
    turn: int
    """Turns taken."""
    understood: bool
    """Whether the last action was understood."""
    truncated: bool
    """Whether the turn limit ended the episode."""


class AlfworldEnv(gymnasium.Env[str, str]):
    """Do a household task: find a thing, perhaps clean, heat or cool it, and put it somewhere.

    The observation is what the game says. An action is one command; what is understood now is in
    ``info["admissible_actions"]``, and ``put X in/on Y`` is the same as ``move X to Y``. Anything else is answered with
    "Nothing happens." and changes nothing but the turn. After the end, `step` returns the last observation with reward
    0.

    Args:
        preset: Names the panel; see `presets.PRESETS`.
        split: Split of the preset's panel; ``"test"`` has floor plans that the others lack.
        state_key: ``"full"`` hashes all facts: what is where, held, open, hot, and what has been visited and examined.
            ``"observation"`` is the text read when the state was reached, as the papers' code has it.
        panel: Tasks to play instead of the preset's: a part of one of its panels.
        max_turns: Turn limit.
        success_reward: Reward of success; 10 in the papers' training.
        engine: One of `ENGINES`.
        render_mode: ``"ansi"`` or None.

    Raises:
        EnvironmentContractError: An argument has a value that is not offered.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 - Gymnasium declares it as an instance variable

    def __init__(
        self,
        preset: str = "small",
        split: str = "train",
        state_key: Literal["full", "observation"] = "full",
        panel: Panel | None = None,
        max_turns: int = TURNS,
        success_reward: float = 1.0,
        engine: Literal["auto", "compiled", "textworld"] = "auto",
        render_mode: str | None = None,
    ) -> None:
        check_preset(preset)
        for name, value, known in (
            ("state key", state_key, ("full", "observation")),
            ("engine", engine, ENGINES),
            ("render mode", render_mode, (None, "ansi")),
        ):
            if value not in known:
                mend = f"known: {', '.join(word for word in known if word)}"
                raise EnvironmentContractError(f"no {name} {value!r}", mend=mend)
        if max_turns < 1:
            raise EnvironmentContractError(f"max_turns is {max_turns}", mend="give at least 1")
        self.panel = load_panel(preset, split) if panel is None else panel
        self.max_turns, self.success_reward, self.render_mode = max_turns, success_reward, render_mode
        self.observation_space = spaces.Text(_LONGEST_OBSERVATION, min_length=0, charset=_PRINTABLE + "\n")
        self.action_space = spaces.Text(_LONGEST_ACTION, charset=_PRINTABLE)
        self._state_key, self._choice = state_key, engine
        self._engines: dict[str, Engine] = {}
        self._engine: Engine | None = None
        self._reply = Reply("", (), False, frozenset())
        self._task_id, self._instruction, self._told = "", "", ""
        self._turn, self._understood, self._truncated = 0, True, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a task.

        Args:
            seed: Seeds the generator that draws tasks.
            options: ``{"task": id}`` names the task; without it one is drawn from the panel.

        Returns:
            Observation and info.

        Raises:
            EnvironmentContractError: Unknown task or option.
        """
        super().reset(seed=seed)
        self._start(chosen_task(self.panel, options, lambda: self.np_random).id)
        return self._observation(), self._info(True)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act.

        Args:
            action: A command; any other text is answered, never raised about.

        Returns:
            Observation, reward (on success), terminated (success), truncated (turn limit), info.

        Raises:
            EngineDiedError: The process of the real engine ended; the next `reset` has a new one.
            UnsupportedGameError: A game in the middle of which something turns up that the compiled engine does not
                know; none of ALFWorld's is like that.
        """
        engine = self._require_engine()
        if self._reply.won or self._truncated:
            return self._observation(), 0.0, self._reply.won, self._truncated, self._info(False)
        command = understand(action, self._reply.admissible) if len(action) <= _LONGEST_ACTION else None
        self._turn += 1
        self._understood = command is not None
        if command is not None:
            try:
                self._reply = engine.act(command)
            except EngineDiedError:
                self.close()
                raise
            except UnsupportedGameError as error:
                mend = "play it with engine='textworld'"
                raise UnsupportedGameError(error.what, where=f"{self._task_id}, {error.where}", mend=mend) from error
            self._told = self._reply.text
        won = self._reply.won
        self._truncated = self._turn >= self.max_turns and not won
        reward = self.success_reward if won else 0.0
        return self._observation(), reward, won, self._truncated, self._info(self._understood)

    def render(self) -> str:
        """Return what the player read when the state was reached."""
        self._require_engine()
        return self._told

    def reference(self) -> str | None:
        """Return the shortest commands from here to success, one a line.

        They are found with full knowledge of where everything is, which the player lacks.

        Returns:
            The commands, None if the task is done or no way is known.
        """
        return "\n".join(self._plan()) or None

    def expert_action(self) -> str | None:
        """Return the first command of `reference`, None where there is none."""
        return next(iter(self._plan()), None)

    def snapshot(self) -> Snapshot:
        """Return the exact state of the episode."""
        state = self._require_engine().snapshot()
        return Snapshot(self._task_id, state, self._told, self._turn, self._understood, self._truncated)

    def restore(self, snapshot: object) -> tuple[str, Info]:
        """Go back to a state.

        Args:
            snapshot: What `snapshot` returned, here or in another instance with the same panel and engine.

        Returns:
            The observation and info that the state had.

        Raises:
            EnvironmentContractError: Not a snapshot of this environment, or of a task that the panel lacks.
        """
        if not isinstance(snapshot, Snapshot):
            raise EnvironmentContractError(f"cannot restore a {type(snapshot).__name__}", mend="give a Snapshot")
        if snapshot.task_id != self._task_id or self._engine is None:
            self._start(snapshot.task_id)
        self._reply = self._require_engine().restore(snapshot.state)
        self._told, self._turn = snapshot.told, snapshot.turn
        self._understood, self._truncated = snapshot.understood, snapshot.truncated
        return self._observation(), self._info(snapshot.understood)

    def close(self) -> None:
        """Free the engines; the process of the real one stays warm for the next environment."""
        for engine in self._engines.values():
            engine.close()
        self._engines, self._engine, self._task_id = {}, None, ""

    def _start(self, task_id: str) -> None:
        path = game_file(self.panel, self.panel[task_id])
        if self._choice != "textworld":
            try:
                self._begin("compiled", path)
            except UnsupportedGameError as error:
                if self._choice == "compiled":
                    raise
                warnings.warn(f"{task_id} is played by the real engine, a hundred times slower: {error}", stacklevel=3)
                self._begin("textworld", path)
        else:
            self._begin("textworld", path)
        goal = re.search(r"Your task is to: (.*?)\.?\s*$", self._reply.text, re.S)
        self._instruction = f"Your task is to: {goal[1] if goal else 'see the first observation'}. {_HOW}"
        self._task_id, self._told = task_id, self._reply.text
        self._turn, self._understood, self._truncated = 0, True, False

    def _begin(self, name: str, path: Path) -> None:
        if name not in self._engines:
            self._engines[name] = CompiledEngine() if name == "compiled" else TextWorldEngine()
        self._engine = self._engines[name]
        self._reply = self._engine.start(path)

    def _plan(self) -> tuple[str, ...]:
        engine = self._require_engine()
        if self._reply.won:
            return ()
        plan = engine.plan()
        if not plan:
            warnings.warn(f"{self._task_id}: no plan is known from here", stacklevel=3)
        return plan

    def _observation(self) -> str:
        return self._told if self._understood else NOTHING_HAPPENS

    def _info(self, action_valid: bool) -> Info:
        return {
            "state_key": _hash(self._reply.facts) if self._state_key == "full" else self._told.encode(),
            "admissible_actions": self._reply.admissible,
            "action_valid": action_valid,
            "task_id": self._task_id,
            "instruction": self._instruction,
            "success": self._reply.won,
            "turn": self._turn,
        }

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise EnvironmentContractError("no task has been started", mend="call reset() first")
        return self._engine


def _hash(facts: frozenset[str]) -> bytes:
    """Return a hash that depends on the facts and not on their order: the sum of the hashes of each."""
    return (sum(map(_hash_of_fact, facts)) % 2**128).to_bytes(16, "big")


@lru_cache(maxsize=1 << 16)
def _hash_of_fact(fact: str) -> int:
    return int.from_bytes(hashlib.blake2b(fact.encode(), digest_size=16).digest(), "big")
