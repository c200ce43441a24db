"""An environment under watch: whatever it returns is held against the contract of `agentbench_credit.env`."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from agentbench_credit.command import printable
from agentbench_credit.env import INFO_KEYS, AgentEnv, Environment, Info

MAX_TURNS = 1000
"""Turns after which an episode counts as endless."""


@dataclass(frozen=True)
class Finding:
    """One breach of the contract."""

    check: str
    """Name of what is checked, such as ``"snapshot-restore"``."""
    what: str
    """What is wrong."""
    where: str
    """Panel, task and turn where it was seen first."""
    mend: str
    """What to do about it."""

    def __str__(self) -> str:
        """Return everything in one line."""
        return printable(f"[{self.check}] {self.where}: {self.what} — {self.mend}")


class StopCheckError(Exception):
    """The environment is too broken to go on with a check; the finding is noted."""


@dataclass(frozen=True)
class Moment:
    """What one reset, step or restore returned."""

    observation: str
    info: Info
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    def state(self) -> str:
        """Return observation and info as JSON, for comparisons within and between processes."""
        return json.dumps([self.observation, {key: self.info[key] for key in INFO_KEYS}], default=bytes.hex)

    def all(self) -> str:
        """Return everything as JSON."""
        return f"{self.state()} {self.reward!r} {self.terminated} {self.truncated}"


@dataclass
class Probe:
    """Builds watched environments and collects what is found, the first of each kind."""

    environment: Environment
    preset: str
    split: str
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    opened: list[AgentEnv] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Name of the panel."""
        return f"{self.environment.name} {self.preset}/{self.split}"

    def add(self, check: str, what: str, mend: str, where: str = "") -> None:
        """Note a finding, unless the same one is there already."""
        self.findings.setdefault((check, what), Finding(check, what, where or self.where, mend))

    def make(self) -> Watched:
        """Build an environment, closed by `close`."""
        env = self.environment.make(preset=self.preset, split=self.split)
        self.opened.append(env)
        return Watched(env, self)

    def close(self) -> None:
        """Close what was built."""
        while self.opened:
            self.opened.pop().close()


def _is_actions(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and all(type(text) is str for text in value))


_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "state_key": ("bytes", lambda value: type(value) is bytes),
    "admissible_actions": ("a tuple of str, or None", _is_actions),
    "action_valid": ("bool", lambda value: type(value) is bool),
    "task_id": ("str", lambda value: type(value) is str),
    "instruction": ("str", lambda value: type(value) is str),
    "success": ("bool", lambda value: type(value) is bool),
    "turn": ("int", lambda value: type(value) is int),
}


class Watched:
    """An environment whose every answer is checked.

    Args:
        env: The environment.
        probe: Takes the findings.
    """

    def __init__(self, env: AgentEnv, probe: Probe) -> None:
        self.env, self.probe = env, probe
        self.now = Moment("", {})

    def reset(self, *, seed: int | None = None, task: str | None = None) -> Moment:
        """Start a task."""
        observation, info = self.env.reset(seed=seed, options=None if task is None else {"task": task})
        self._check_types(observation, info, "after reset")
        where = f"{self.probe.where}, task {info['task_id']}"
        if task is not None and info["task_id"] != task:
            self.probe.add("task-ignored", "reset(options={'task': id}) starts another task", "start that one", where)
        if info["task_id"] not in self.env.panel:
            self.probe.add("task-unknown", "the task that reset draws is not in the panel", "draw from it", where)
        if info["turn"] != 0:
            self.probe.add("turn-count", "turn is not 0 after reset", "count the turns taken since reset", where)
        self.now = Moment(observation, info)
        self._check_success(where)
        return self.now

    def step(self, action: str) -> Moment:
        """Act."""
        before, where = self.now, self._where()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._check_types(observation, info, "after step")
        if not {type(terminated), type(truncated)} <= {bool}:
            self._stop("step-type", "terminated or truncated is no bool", "return bool(...)", where)
        if type(reward) not in (int, float) or not math.isfinite(reward):
            self._stop("step-type", "the reward is no finite float", "return a float", where)
        self.now = Moment(observation, info, reward, terminated, truncated)
        if before.over:
            self._check_after_end(before, where)
        else:
            self._check_step(before, action, where)
        return self.now

    def restore(self, snapshot: object) -> Moment:
        """Go back to a snapshot."""
        observation, info = self.env.restore(snapshot)
        self._check_types(observation, info, "after restore")
        self.now = Moment(observation, info)
        return self.now

    def choose(self, rng: random.Random) -> str:
        """Return a random admissible action; the expert's, else an empty one, where none is listed."""
        actions = self.now.info["admissible_actions"]
        return rng.choice(actions) if actions else self.env.expert_action() or ""

    def walk(self, seed: int, turns: int) -> list[Moment]:
        """Act by `choose` for some turns, at most to the end of the episode; returns what happened."""
        rng = random.Random(seed)
        moments: list[Moment] = []
        while len(moments) < turns and not self.now.over:
            moments.append(self.step(self.choose(rng)))
        return moments

    def _where(self) -> str:
        return f"{self.probe.where}, task {self.now.info['task_id']}, turn {self.now.info['turn']}"

    def _stop(self, check: str, what: str, mend: str, where: str) -> None:
        self.probe.add(check, what, mend, where)
        raise StopCheckError

    def _check_types(self, observation: object, info: Info, when: str) -> None:
        where = f"{self.probe.where}, {when}"
        if type(observation) is not str:
            what = f"the observation is {type(observation).__name__}, not str"
            self._stop("observation-type", what, "return text", where)
        if missing := [key for key in INFO_KEYS if key not in info]:
            self._stop("info-missing", f"info lacks {', '.join(missing)}", "give every key of INFO_KEYS", where)
        for key, (kind, fits) in _TYPES.items():
            if not fits(info[key]):
                what = f"info['{key}'] is {type(info[key]).__name__}, not {kind}"
                self._stop("info-type", what, "convert it before it is returned", where)

    def _check_success(self, where: str) -> None:
        if self.now.info["success"] and not self.now.terminated:
            mend = "end the episode where the task is solved, and only then report success"
            self.probe.add("success-without-end", "success is True but terminated is not", mend, where)

    def _check_step(self, before: Moment, action: str, where: str) -> None:
        now, admissible = self.now.info, before.info["admissible_actions"]
        self._check_success(where)
        if now["turn"] != before.info["turn"] + 1:
            mend = "add 1 at every step, also for an invalid action"
            self.probe.add("turn-count", "a step does not raise turn by 1", mend, where)
        if now["task_id"] != before.info["task_id"]:
            self.probe.add("task-changed", "task_id changes within an episode", "keep it until reset", where)
        if admissible is not None and action in admissible and not now["action_valid"]:
            mend = "list only what step accepts"
            self.probe.add("admissible-refused", "an admissible action is called invalid", mend, where)
        if not now["action_valid"] and now["state_key"] != before.info["state_key"]:
            mend = "leave the state as it was, and turns out of the key"
            self.probe.add("invalid-moves-state", "an invalid action changes state_key", mend, where)

    def _check_after_end(self, before: Moment, where: str) -> None:
        same = all(self.now.info[key] == before.info[key] for key in ("state_key", "task_id", "success"))
        if not same or not self.now.over:
            mend = "return the final state again; only reset starts a new episode"
            self.probe.add("step-after-end", "a step after the end changes the state", mend, where)
