"""Many environments as one `gymnasium.vector.VectorEnv`, in this process or spread over worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from agentbench_credit.env import ENVIRONMENTS, AgentEnv, Environment, Info
from agentbench_credit.errors import ConfigError, EnvironmentContractError

MakeEnv = Callable[[], AgentEnv]
Command = tuple[str, Any]
"""``("reset", (seed, options))`` or ``("step", action)``."""
Outcome = tuple[str, float, bool, bool, Info]
"""Observation, reward, terminated, truncated, info; of a reset 0 and False."""


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
        timeout: Seconds that a worker may take for one step or reset of its environments before it is replaced.
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
    and a new instance takes its place. One that cannot even be reset raises.

    Args:
        make_env: Builds one environment; picklable if there are workers.
        num_envs: Number of environments N.
        workers: Processes; 0 for none.
        autoreset_mode: When an ended environment is reset.
        timeout: Seconds that a worker may take.
    """

    def __init__(
        self, make_env: MakeEnv, num_envs: int, *, workers: int, autoreset_mode: AutoresetMode, timeout: float
    ) -> None:
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
        numbers = range(num_envs)
        self._pool: _Pool = _Processes(make_env, numbers, workers, timeout) if workers else _Inline(make_env, numbers)
        example.close()

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
            EnvironmentContractError: An environment could not be reset.
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
        self._run({i: ("reset", (seed[i], own[i])) for i in numbers})
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
            EnvironmentContractError: Not one action for each, an environment could not be reset, or one that ended was
                not, with automatic resets off.
        """
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise EnvironmentContractError(f"{len(actions)} actions for {self.num_envs} environments")
        over = self._over if self.autoreset_mode is not AutoresetMode.SAME_STEP else np.zeros(self.num_envs, dtype=bool)
        if self.autoreset_mode is AutoresetMode.DISABLED and over.any():
            ended = ", ".join(map(str, np.flatnonzero(over)))
            raise EnvironmentContractError(f"environments {ended} have ended", mend='reset them with "reset_mask"')
        fresh: Command = ("reset", (None, {}))
        self._run({i: fresh if over[i] else ("step", action) for i, action in enumerate(actions)})
        outcomes = list(self._outcomes)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and self._over.any():
            done: list[int] = np.flatnonzero(self._over).tolist()
            for i in done:
                final = {"final_obs": outcomes[i][0], "final_info": outcomes[i][4]}
                infos = self._add_info(infos, final, i)
            self._run(dict.fromkeys(done, fresh))
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
        for i, outcome in self._pool.run(commands).items():
            self._outcomes[i] = outcome
            self._over[i] = outcome[2] or outcome[3]

    def _observations(self) -> tuple[str, ...]:
        return tuple(outcome[0] for outcome in self._outcomes)

    def _infos(self, infos: dict[str, Any], chosen: Iterable[int]) -> dict[str, Any]:
        """Add the environments' latest infos to those of the vector."""
        for i in chosen:
            infos = self._add_info(infos, self._outcomes[i][4], i)
        return infos


class _Pool(Protocol):
    """Holds environments by number and runs commands on them."""

    def run(self, commands: Mapping[int, Command]) -> dict[int, Outcome]:
        """Return what came of commands, and of environments that were lost.

        Raises:
            EnvironmentContractError: A reset failed.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def _lost(number: int, error: str) -> Outcome:
    """End the episode of an environment that failed in a step."""
    warnings.warn(f"environment {number} failed and is replaced:\n{error}", stacklevel=6)
    return "", 0.0, False, True, {"error": error}


class _Inline:
    """Environments of this process."""

    def __init__(self, make_env: MakeEnv, numbers: Iterable[int]) -> None:
        self.make_env = make_env
        self.envs = {number: make_env() for number in numbers}

    def run(self, commands: Mapping[int, Command]) -> dict[int, Outcome]:
        """Run commands in order; see `_Pool`."""
        return {number: self._one(number, *command) for number, command in commands.items()}

    def _one(self, number: int, name: str, argument: Any) -> Outcome:
        env = self.envs[number]
        try:
            if name == "step":
                return env.step(argument)
            seed, options = argument
            observation, info = env.reset(seed=seed, options=options)
            return observation, 0.0, False, False, info
        except Exception as error:  # whatever an environment raises is its own failure
            self.envs[number] = self.make_env()  # an instance that has failed is not trusted again
            _close(env)
            if name == "step":
                return _lost(number, traceback.format_exc())
            raise EnvironmentContractError(f"cannot be reset ({error})", where=f"environment {number}") from error

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs.values():
            _close(env)


def _close(env: AgentEnv) -> None:
    try:
        env.close()
    except Exception as error:  # nothing more can be done for it
        warnings.warn(f"an environment could not be closed ({error})", stacklevel=2)


def _serve(connection: Connection, make_env: MakeEnv, numbers: Sequence[int]) -> None:
    """Run commands that arrive until there are no more; what a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its workers
    pool = _Inline(make_env, numbers)
    while True:
        try:
            commands = connection.recv()
        except EOFError:
            break
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                answer: object = pool.run(commands)
            except EnvironmentContractError as error:
                answer = error
        connection.send((answer, [str(warning.message) for warning in caught]))
    pool.close()


class _Worker:
    """A process with its environments."""

    def __init__(self, make_env: MakeEnv, numbers: Sequence[int]) -> None:
        context = multiprocessing.get_context("forkserver")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, make_env, numbers), daemon=True)
        self.process.start()
        other.close()

    def answer(self, timeout: float) -> Any:
        """Return the answer to what was sent; EOFError if the process has died or takes too long."""
        if not self.connection.poll(timeout):
            raise EOFError(f"no answer within {timeout:g} s")
        return self.connection.recv()

    def close(self, *, grace: float) -> None:
        """End the process, by force after some seconds."""
        self.connection.close()
        self.process.join(grace)
        self.process.kill()
        self.process.join()
        self.process.close()


class _Processes:
    """Environments spread over worker processes."""

    def __init__(self, make_env: MakeEnv, numbers: Sequence[int], workers: int, timeout: float) -> None:
        self.make_env, self.timeout = make_env, timeout
        self.shares = [numbers[i::workers] for i in range(workers)]
        self.workers = [_Worker(make_env, share) for share in self.shares]

    def run(self, commands: Mapping[int, Command]) -> dict[int, Outcome]:
        """Run commands, those of different workers at the same time; see `_Pool`."""
        shares = [{number: commands[number] for number in share if number in commands} for share in self.shares]
        busy = [i for i, share in enumerate(shares) if share]
        for i in busy:
            self._send(i, shares[i])
        outcomes: dict[int, Outcome] = {}
        failures: list[EnvironmentContractError] = []
        for i in busy:
            answer = self._answer(i, shares[i])
            if isinstance(answer, EnvironmentContractError):
                failures.append(answer)
            else:
                outcomes |= answer
        if failures:
            raise failures[0]
        return outcomes

    def _send(self, i: int, commands: Mapping[int, Command]) -> None:
        with contextlib.suppress(OSError):  # it has died, which waiting for its answer will show
            self.workers[i].connection.send(commands)

    def _answer(self, i: int, commands: Mapping[int, Command]) -> dict[int, Outcome] | EnvironmentContractError:
        """Return a worker's outcomes; one that has died or hangs is replaced."""
        try:
            answer, messages = self.workers[i].answer(self.timeout)
        except (EOFError, OSError) as error:
            self.workers[i].process.join(1.0)
            what = str(error) or f"exit code {self.workers[i].process.exitcode}"
            self.workers[i].close(grace=0.0)
            self.workers[i] = _Worker(self.make_env, self.shares[i])
            if any(name == "reset" for name, _ in commands.values()):
                return EnvironmentContractError(f"cannot be reset ({what})", where=f"worker {i}")
            return {number: _lost(number, f"its worker process died ({what})") for number in self.shares[i]}
        for message in messages:
            warnings.warn(message, stacklevel=5)
        outcomes: dict[int, Outcome] | EnvironmentContractError = answer
        return outcomes

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.close(grace=2.0)
