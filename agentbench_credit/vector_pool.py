"""Where the environments of `agentbench_credit.vector` live: in this process, or spread over worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from agentbench_credit.env import AgentEnv, Info
from agentbench_credit.errors import EnvironmentContractError

MakeEnv = Callable[[], AgentEnv]
Command = tuple[str, Any]
"""``("reset", (seed, options))`` or ``("step", action)``."""
Outcome = tuple[str, float, bool, bool, Info]
"""Observation, reward, terminated, truncated, info; of a reset 0 and False."""
START_SECONDS = 600.0
"""Longest wait for a worker's environments to be built, which may mean that panels are made."""


class Pool(Protocol):
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


def lost(number: int, error: str) -> Outcome:
    """End the episode of an environment that failed in a step."""
    warnings.warn(f"environment {number} failed and is replaced:\n{error}", stacklevel=6)
    return "", 0.0, False, True, {"error": error}


class Inline:
    """Environments of this process.

    Args:
        make_env: Builds one.
        numbers: Their numbers.
    """

    def __init__(self, make_env: MakeEnv, numbers: Iterable[int]) -> None:
        self.make_env = make_env
        self.envs: dict[int, AgentEnv] = {}
        try:
            for number in numbers:
                self.envs[number] = make_env()
        except BaseException:
            self.close()
            raise

    def run(self, commands: Mapping[int, Command]) -> dict[int, Outcome]:
        """Run commands in order; see `Pool`."""
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
            where, told = f"environment {number}", traceback.format_exc()
            _close(env)
            try:
                self.envs[number] = self.make_env()  # an instance that has failed is not trusted again
            except Exception as worse:
                what = f"failed ({error}), and no new one can be built ({worse})"
                raise EnvironmentContractError(what, where=where) from error
            if name == "step":
                return lost(number, told)
            raise EnvironmentContractError(f"cannot be reset ({error})", where=where) from error

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
    """Build environments and run commands that arrive until there are no more; what a worker process does.

    An answer bears the number of its request, that of the building 0. It is a text, a traceback, where there is none.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its workers
    with contextlib.suppress(EOFError, ConnectionError):  # the parent needs it no more
        try:
            pool = Inline(make_env, numbers)
        except Exception:
            connection.send((0, traceback.format_exc(), []))
            return
        connection.send((0, {}, []))
        try:
            while True:
                _serve_one(connection, pool)
        finally:
            pool.close()


def _serve_one(connection: Connection, pool: Inline) -> None:
    number, commands = connection.recv()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer: object = pool.run(commands)
        except EnvironmentContractError as error:
            answer = error
    messages = [str(warning.message) for warning in caught]
    try:
        connection.send((number, answer, messages))
    except ConnectionError:
        raise
    except Exception:  # what an environment returned cannot be pickled
        connection.send((number, traceback.format_exc(), messages))


class _Worker:
    """A process with its environments."""

    def __init__(self, make_env: MakeEnv, numbers: Sequence[int]) -> None:
        context = multiprocessing.get_context("forkserver")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, make_env, numbers), daemon=True)
        self.process.start()
        other.close()
        self.ready = False
        self._requests = 0

    def send(self, commands: Mapping[int, Command]) -> None:
        """Send a request; an answer to an earlier one that nobody waited for, after Ctrl-C, is passed over."""
        self._requests += 1
        with contextlib.suppress(OSError):  # it has died, which waiting for its answer will show
            self.connection.send((self._requests, commands))

    def answer(self, timeout: float) -> tuple[Any, list[str]]:
        """Return the answer to the last request and its warnings; EOFError if there is none in time or ever."""
        deadline = time.monotonic() + timeout
        try:
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                number, answer, messages = self.connection.recv()
                if number == self._requests:
                    return answer, messages
        except (EOFError, OSError):
            self.process.join(1.0)
            raise EOFError(f"exit code {self.process.exitcode}") from None
        raise EOFError(f"no answer within {timeout:g} s")

    def close(self, *, grace: float) -> None:
        """End the process, by force after some seconds."""
        self.connection.close()
        self.process.join(grace)
        self.process.kill()
        self.process.join()
        self.process.close()


class Processes:
    """Environments spread over worker processes.

    Args:
        make_env: Builds one; picklable.
        numbers: Their numbers.
        workers: How many processes.
        timeout: Seconds that a worker may take for a request.

    Raises:
        EnvironmentContractError: A worker cannot build its environments.
    """

    def __init__(self, make_env: MakeEnv, numbers: Sequence[int], workers: int, timeout: float) -> None:
        self.make_env, self.timeout = make_env, timeout
        self.shares = [numbers[i::workers] for i in range(workers)]
        self.workers: list[_Worker] = []
        try:
            for share in self.shares:
                self.workers.append(_Worker(make_env, share))
            for i in range(workers):
                self._wait_until_ready(i)
        except BaseException:
            self.close()
            raise

    def run(self, commands: Mapping[int, Command]) -> dict[int, Outcome]:
        """Run commands, those of different workers at the same time; see `Pool`."""
        shares = [{number: commands[number] for number in share if number in commands} for share in self.shares]
        busy = [i for i, share in enumerate(shares) if share]
        for i in busy:
            self._wait_until_ready(i)
        for i in busy:
            self.workers[i].send(shares[i])
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

    def _wait_until_ready(self, i: int) -> None:
        """Wait for a new worker's environments; a worker that cannot build them is replaced."""
        if self.workers[i].ready:
            return
        try:
            answer, _ = self.workers[i].answer(START_SECONDS)
        except EOFError as error:
            answer = str(error)
        if isinstance(answer, str):
            self._replace(i)
            reason = answer.strip().splitlines()[-1]
            failure = EnvironmentContractError(f"its environments cannot be built ({reason})", where=f"worker {i}")
            failure.add_note(answer)
            raise failure
        self.workers[i].ready = True

    def _replace(self, i: int) -> None:
        self.workers[i].close(grace=0.0)
        self.workers[i] = _Worker(self.make_env, self.shares[i])

    def _answer(self, i: int, commands: Mapping[int, Command]) -> dict[int, Outcome] | EnvironmentContractError:
        """Return a worker's outcomes; one that has died, hangs or gives none is replaced."""
        try:
            answer, messages = self.workers[i].answer(self.timeout)
        except EOFError as error:
            answer, messages = f"its worker process died ({error})", []
        for message in messages:
            warnings.warn(message, stacklevel=5)
        if isinstance(answer, str):
            self._replace(i)
            if any(name == "reset" for name, _ in commands.values()):
                return EnvironmentContractError(f"cannot be reset ({answer})", where=f"worker {i}")
            return {number: lost(number, answer) for number in commands}
        outcomes: dict[int, Outcome] | EnvironmentContractError = answer
        return outcomes

    def close(self) -> None:
        """End the workers, all at the same time."""
        for worker in self.workers:
            worker.connection.close()
        for worker in self.workers:
            worker.close(grace=2.0)
