"""Many environments as one `gymnasium.vector.VectorEnv`, in this process or spread over worker processes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agentbench_credit.env import ENVIRONMENTS, Environment
from agentbench_credit.errors import ConfigError, EnvironmentContractError
from agentbench_credit.vector_pool import Command, Inline, MakeEnv, Outcome, Pool, Processes


def make_vec(
    environment: str | Environment,
    num_envs: int,
    *,
    workers: int = 0,
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    timeout: float = 60.0,
    **kwargs: Any,
) -> TextVectorEnv:
    """Build a vector environment.

    Args:
        environment: A registered name, or an entry of one's own.
        num_envs: Number of environments N.
        workers: Processes that the environments are spread over; 0 steps them one after the other in this process.
        autoreset_mode: Gymnasium's: when an ended environment is reset.
        timeout: Seconds that a worker may take for one step or reset of its environments before it is replaced;
            building them does not count.
        **kwargs: Arguments of each environment, such as ``preset`` and ``split``.

    Returns:
        The vector environment; close it, or use it in a ``with`` block. A script that asks for workers needs Python's
        usual ``if __name__ == "__main__"``.

    Raises:
        ConfigError: Fewer than one environment, or more workers than environments.
    """
    if num_envs < 1 or not 0 <= workers <= num_envs:
        raise ConfigError(f"{num_envs} environments over {workers} workers", mend="give at least one to each")
    if isinstance(environment, str):
        environment = ENVIRONMENTS.get(environment)
    return TextVectorEnv(
        partial(environment.make, **kwargs),
        num_envs,
        workers=workers,
        autoreset_mode=autoreset_mode,
        timeout=timeout,
    )


class TextVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], NDArray[Any]]):
    """N environments that are reset and stepped together.

    An environment that raises in `step`, or whose worker dies or takes too long, does not stop the others: its episode
    ends as truncated with an empty observation and reward 0, ``infos["error"]`` holds the traceback, a warning says so,
    and a new instance takes its place, whose draws follow from the last seed that was given. One that cannot even be
    reset raises.

    Args:
        make_env: Builds one environment; picklable if there are workers.
        num_envs: Number of environments N.
        workers: Processes; 0 for none.
        autoreset_mode: When an ended environment is reset.
        timeout: Seconds that a worker may take.

    Raises:
        EnvironmentContractError: A worker could not build its environments.
    """

    def __init__(
        self, make_env: MakeEnv, num_envs: int, *, workers: int, autoreset_mode: AutoresetMode, timeout: float
    ) -> None:
        self.closed = True  # until it is whole: what fails below leaves nothing to close
        example: Any = make_env()
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = example.observation_space, example.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {**example.metadata, "autoreset_mode": autoreset_mode}
        self.spec = example.spec
        self.autoreset_mode = autoreset_mode
        self._over = np.zeros(num_envs, dtype=bool)
        self._outcomes: list[Outcome] = [("", 0.0, False, False, {})] * num_envs
        self._seeds: list[int | None] = [None] * num_envs
        self._losses, self._replaced = [0] * num_envs, [False] * num_envs
        example.close()
        numbers = range(num_envs)
        self._pool: Pool = Processes(make_env, numbers, workers, timeout) if workers else Inline(make_env, numbers)
        self.closed = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start a task in every environment.

        Args:
            seed: Of the first environment, the next ones counting up; or one for each.
            options: As an environment's; ``"task"`` may be a list with one task for each environment. With Gymnasium's
                ``"reset_mask"`` (bool [N]) only those are reset.

        Returns:
            N observations, and the infos by key as arrays [N].

        Raises:
            EnvironmentContractError: An environment could not be reset, or all are closed.
        """
        options = dict(options or {})
        chosen = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=bool)), dtype=bool)
        if seed is None or isinstance(seed, int):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        tasks = options.pop("task", None)
        tasks = list(tasks) if isinstance(tasks, (list, tuple)) else [tasks] * self.num_envs
        if not len(seed) == len(tasks) == len(chosen) == self.num_envs:
            what = f"{len(seed)} seeds, {len(tasks)} tasks and a mask of {len(chosen)} for {self.num_envs} environments"
            raise EnvironmentContractError(what, mend="give one for each")
        own = [options if task is None else options | {"task": task} for task in tasks]
        numbers: list[int] = np.flatnonzero(chosen).tolist()
        self._run({i: ("reset", (self._seed_for(i, seed[i]), own[i])) for i in numbers})
        return self._observations(), self._infos({}, numbers)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Act in every environment.

        Args:
            actions: One for each.

        Returns:
            N observations, rewards [N], terminated [N], truncated [N], and the infos by key as arrays [N].

        Raises:
            EnvironmentContractError: Not one action for each, an environment could not be reset, one that ended was
                not, with automatic resets off, or all are closed.
        """
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise EnvironmentContractError(f"{len(actions)} actions for {self.num_envs} environments")
        over = self._over if self.autoreset_mode is not AutoresetMode.SAME_STEP else np.zeros(self.num_envs, dtype=bool)
        if self.autoreset_mode is AutoresetMode.DISABLED and over.any():
            ended = ", ".join(map(str, np.flatnonzero(over)))
            raise EnvironmentContractError(f"environments {ended} have ended", mend='reset them with "reset_mask"')
        self._run({i: self._fresh(i) if over[i] else ("step", action) for i, action in enumerate(actions)})
        outcomes = list(self._outcomes)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._over.any():
            done: list[int] = np.flatnonzero(self._over).tolist()
            for i in done:
                final = {"final_obs": outcomes[i][0], "final_info": outcomes[i][4]}
                infos = self._add_info(infos, final, i)
            self._run({i: self._fresh(i) for i in done})
        rewards, terminated, truncated = (np.array([outcome[k] for outcome in outcomes]) for k in (1, 2, 3))
        return self._observations(), rewards, terminated, truncated, self._infos(infos, range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments and end the workers."""
        del kwargs
        self._pool.close()

    def __enter__(self) -> TextVectorEnv:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _run(self, commands: Mapping[int, Command]) -> None:
        if self.closed:
            raise EnvironmentContractError("the environments are closed", mend="make new ones")
        for i, outcome in self._pool.run(commands).items():
            self._outcomes[i] = outcome
            self._over[i] = outcome[2] or outcome[3]
            if outcome[4].keys() == {"error"}:  # what `lost` returns
                self._losses[i], self._replaced[i] = self._losses[i] + 1, True

    def _fresh(self, i: int) -> Command:
        return "reset", (self._seed_for(i, None), {})

    def _seed_for(self, i: int, seed: int | None) -> int | None:
        """Return the seed of a reset: the one that is given, and for a new instance one that follows from the last."""
        if seed is not None:
            self._seeds[i], self._losses[i] = seed, 0
        elif self._replaced[i] and self._seeds[i] is not None:
            seed = random.Random(f"{self._seeds[i]}/{self._losses[i]}").getrandbits(31)
        self._replaced[i] = False
        return seed

    def _observations(self) -> tuple[str, ...]:
        return tuple(outcome[0] for outcome in self._outcomes)

    def _infos(self, infos: dict[str, Any], chosen: Iterable[int]) -> dict[str, Any]:
        """Add the environments' latest infos to those of the vector."""
        for i in chosen:
            infos = self._add_info(infos, self._outcomes[i][4], i)
        return infos
