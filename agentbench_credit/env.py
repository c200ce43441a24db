"""The environment contract: text in, text out, with the keys, snapshots and panels that credit assignment needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from agentbench_credit.errors import EnvironmentContractError
from agentbench_credit.registry import Registry, subpackages

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from numpy.random import Generator

Info = dict[str, Any]

INFO_KEYS = ("state_key", "admissible_actions", "action_valid", "task_id", "instruction", "success", "turn")
"""What `info` holds on every reset and step: state_key (bytes), admissible_actions (tuple of str or None),
action_valid (bool), task_id (str), instruction (str), success (bool), turn (int, turns taken so far).

An environment that counts more than success adds metrics (dict of floats by name): turns keep them, and results average
those of each rollout's last turn."""


@dataclass(frozen=True)
class Task:
    """One task of a panel."""

    id: str
    """Unique within the environment, also across splits."""
    data: str
    """What the environment needs to set the task up: a level, a game file's specification, a problem."""


@dataclass(frozen=True)
class Panel:
    """A named, versioned list of tasks; the same on every machine, which its hash proves."""

    name: str
    """The preset it belongs to, such as ``"6x6-1box"``."""
    split: str
    """``"train"``, ``"validation"`` or ``"test"``."""
    version: int
    """Raised whenever a task changes."""
    tasks: tuple[Task, ...] = field(repr=False)
    """The tasks in their fixed order."""

    @cached_property
    def sha256(self) -> str:
        """Hash over name, split, version and all tasks in order."""
        head = [self.name, self.split, self.version]
        text = json.dumps([head, [[task.id, task.data] for task in self.tasks]], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {task.id: task for task in self.tasks}

    def __getitem__(self, task_id: str) -> Task:
        """Return a task by its id.

        Raises:
            EnvironmentContractError: The panel has no such task.
        """
        try:
            return self._by_id[task_id]
        except KeyError:
            mend = f"the panel holds {len(self)} tasks, from {self.tasks[0].id} to {self.tasks[-1].id}"
            raise EnvironmentContractError(f"no task {task_id!r}", where=str(self), mend=mend) from None

    def __contains__(self, task_id: object) -> bool:
        """Tell whether a task id belongs to the panel."""
        return task_id in self._by_id

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        """Iterate over the tasks in order."""
        return iter(self.tasks)

    def __str__(self) -> str:
        """Return ``name/split``."""
        return f"{self.name}/{self.split}"


def chosen_task(panel: Panel, options: dict[str, Any] | None, generator: Callable[[], Generator]) -> Task:
    """Return the task that ``reset`` shall start: what its options name, else one that is drawn.

    Args:
        panel: The environment's tasks.
        options: Those of ``reset``; ``"task"`` is the only one there is.
        generator: Gives the environment's ``np_random``, which is slow to make and not needed for a named task.

    Returns:
        The task.

    Raises:
        EnvironmentContractError: Unknown task or option.
    """
    options = options or {}
    if unknown := options.keys() - {"task"}:
        what = f"unknown reset option {', '.join(sorted(map(repr, unknown)))}"
        raise EnvironmentContractError(what, mend="known: task")
    task_id = options.get("task")
    return panel.tasks[int(generator().integers(len(panel)))] if task_id is None else panel[task_id]


@runtime_checkable
class AgentEnv(Protocol):
    """What every environment offers beyond `gymnasium.Env`; observation and action are text.

    ``step`` never raises on any string: an action that is not understood leaves the state as it was, returns an
    observation that says so and ``info["action_valid"] = False``. ``terminated`` means that the task ended,
    ``truncated`` that the turn limit was reached. `INFO_KEYS` lists what every ``info`` holds.
    """

    panel: Panel
    """The tasks."""
    spec: EnvSpec | None
    """Gymnasium's record of id and constructor arguments."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a task: ``options={"task": id}``, else one drawn from the panel by the seeded generator."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Act; returns observation, reward, terminated, truncated, info."""
        ...

    def reference(self) -> str | None:
        """Return the remaining ground truth from the current state as the text of actions, None if there is none."""
        ...

    def expert_action(self) -> str | None:
        """Return the solver's next action in the current state, None if there is none."""
        ...

    def snapshot(self) -> object | None:
        """Return an immutable, picklable copy of the exact state, None where that is impossible."""
        ...

    def restore(self, snapshot: object) -> tuple[str, Info]:
        """Go back to a snapshot; returns the observation and info that the state had."""
        ...

    def close(self) -> None:
        """Free what the environment holds."""
        ...


@dataclass(frozen=True)
class Environment:
    """A registered environment: how to build it and where its panels come from."""

    name: str
    """The registry name (``"sokoban"``)."""
    id: str
    """Versioned Gymnasium id (``"agentbench/Sokoban-v0"``)."""
    entry_point: str
    """``"module:Class"``; the class takes ``preset`` and ``split`` and possibly more keyword arguments."""
    presets: tuple[str, ...]
    """Named settings, the default first."""
    load_panel: Callable[[str, str], Panel]
    """``load_panel(preset, split)``."""
    splits: tuple[str, ...] = ("train", "validation", "test")
    """The splits that a preset has."""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The splits of presets that have others, such as benchmarks that are for testing alone."""

    def splits_of(self, preset: str) -> tuple[str, ...]:
        """Return the splits that a preset has."""
        return self.only.get(preset, self.splits)

    def register(self) -> None:
        """Make the id known to `gymnasium.make`; doing it twice is harmless."""
        import gymnasium

        if self.id not in gymnasium.registry:
            gymnasium.register(self.id, entry_point=self.entry_point, disable_env_checker=True, order_enforce=False)

    def make(self, **kwargs: Any) -> AgentEnv:
        """Build one instance through `gymnasium.make`.

        Args:
            **kwargs: Constructor arguments, recorded in the instance's ``spec``.

        Returns:
            The environment itself, without wrappers.
        """
        import gymnasium

        self.register()
        return cast(AgentEnv, gymnasium.make(self.id, **kwargs).unwrapped)


def _builtin() -> dict[str, str]:
    import agentbench_credit.envs

    return subpackages(agentbench_credit.envs, "ENVIRONMENT")


ENVIRONMENTS: Registry[Environment] = Registry(
    "environment", "agentbench_credit.envs", base=Environment, builtin=_builtin
)
