"""The real engine, TextWorld's with fast-downward, played through a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from agentbench_credit.envs.alfworld.engine import EngineDiedError, GameFileError, Reply
from agentbench_credit.errors import EnvironmentContractError

START_SECONDS = 300.0
"""Longest wait for a start; a large game takes a second, on a busy machine more."""
PLAN_SECONDS = 300.0
"""Longest wait for a plan by default."""
ANSWER_SECONDS = 120.0
"""Longest wait for any other answer."""
WARM_PROCESSES = 2
"""Processes kept when their engine is closed: starting one takes about two seconds."""

_WORKER = "agentbench_credit.envs.alfworld.textworld_worker"


@dataclass(frozen=True)
class Replay:
    """A state of the real engine, as the way there: the engine itself cannot be set to a state."""

    path: Path
    """The game."""
    commands: tuple[str, ...]
    """Everything that was done since its start."""


class TextWorldEngine:
    """Plays a game with the unchanged engine; see `engine.Engine`.

    `restore` plays the commands again, so it takes as long as they did.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._path: Path | None = None
        self._commands: list[str] = []

    def start(self, path: Path) -> Reply:
        """Load a game and begin; see `engine.Engine.start`.

        Args:
            path: The file.

        Returns:
            The introduction.

        Raises:
            GameFileError: The engine cannot load the file.
        """
        if not path.is_file():
            raise GameFileError("the game file does not exist", where=str(path))
        self._path = None
        if self._process is None:
            self._process = _take()
        answer = self._ask("start", str(path), seconds=START_SECONDS)
        if "error" in answer:
            raise GameFileError(f"TextWorld cannot load the game ({answer['error']})", where=str(path))
        self._path, self._commands = path, []
        return _reply(answer)

    def act(self, command: str) -> Reply:
        """Carry out a command; see `engine.Engine.act`.

        Args:
            command: The command.

        Returns:
            What the engine says.

        Raises:
            EngineDiedError: The engine's process ended, hangs, or raised an exception.
        """
        answer = self._ask("act", command)
        if "error" in answer:
            where = f"{self._path}, command {command!r}"
            self._lose_process()
            raise EngineDiedError(f"the engine raised {answer['error']}", where=where)
        self._commands.append(command)
        return _reply(answer)

    def plan(self, seconds: float = PLAN_SECONDS) -> tuple[str, ...]:
        """Return a plan from the current state by fast-downward.

        Args:
            seconds: Time limit; plans for large games take from a second to minutes.

        Returns:
            Commands, empty if there is no plan.

        Raises:
            EngineDiedError: The engine's process ended, hangs, or raised an exception.
        """
        answer = self._ask("plan", seconds=seconds)
        if "error" in answer:
            raise EngineDiedError(f"the planner raised {answer['error']}", where=str(self._path))
        return tuple(answer["answer"])

    def snapshot(self) -> Replay:
        """Return the way to the current state.

        Raises:
            EnvironmentContractError: Nothing has been started.
        """
        if self._path is None:
            raise EnvironmentContractError("no game has been started", mend="call start() first")
        return Replay(self._path, tuple(self._commands))

    def restore(self, snapshot: object) -> Reply:
        """Play the way to a state again; see `engine.Engine.restore`.

        Args:
            snapshot: What `snapshot` returned, here or in another engine.

        Returns:
            What the engine said when the state was reached.

        Raises:
            EnvironmentContractError: Not a snapshot of this engine.
        """
        if not isinstance(snapshot, Replay):
            raise EnvironmentContractError(f"cannot restore a {type(snapshot).__name__}", mend="give a Replay")
        reply = self.start(snapshot.path)
        for command in snapshot.commands:
            reply = self.act(command)
        return reply

    def close(self) -> None:
        """Give the process back, warm for the next engine."""
        if self._process is not None:
            _give_back(self._process)
        self._process, self._path = None, None

    def _ask(self, *request: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        if self._process is None or (self._path is None and request[0] != "start"):
            raise EnvironmentContractError("no game is being played", mend="start one; an environment does in reset()")
        try:
            return self._process.ask(list(request), seconds)
        except BaseException:  # after Ctrl-C too: the answer that is still to come is not one to the next request
            self._lose_process()
            raise

    def _lose_process(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._process, self._path = None, None


class _Process:
    """One process that plays one game at a time."""

    def __init__(self) -> None:
        self._errors = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed with the process
        # alfworld makes this folder when it is imported; one that exists is left as it is.
        data = os.environ.get("ALFWORLD_DATA") or tempfile.gettempdir()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._popen = subprocess.Popen(
            [sys.executable, "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"ALFWORLD_DATA": data, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the process that plays
        )
        self.owner = os.getpid()

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, request: list[str], seconds: float) -> dict[str, Any]:
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise self._died(request) from None
        line, deadline = b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    what = f"TextWorld's process gave no answer to {request[0]} within {seconds:.0f} s"
                    raise EngineDiedError(what, mend="reset the environment; it gets a new process")
                part = os.read(stdout.fileno(), 1 << 20)
                if not part:
                    raise self._died(request)
                line += part
        return cast(dict[str, Any], json.loads(line))

    def _died(self, request: list[str]) -> EngineDiedError:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(5)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
        what = f"TextWorld's process ended with code {self._popen.poll()} at {request[0]} ({lines[-1]})"
        missing = any("ModuleNotFoundError" in line for line in lines[-3:])
        mend = (
            "pip install 'agentbench-credit[alfworld]'" if missing else "reset the environment; it gets a new process"
        )
        return EngineDiedError(what, mend=mend)

    def kill(self) -> None:
        self._errors.close()
        if self.owner != os.getpid():
            return
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


_warm: list[_Process] = []
_lock = threading.Lock()


def _take() -> _Process:
    with _lock:
        while _warm:
            process = _warm.pop()
            if process.owner == os.getpid() and process.alive:
                return process
            process.kill()
    return _Process()


def _give_back(process: _Process) -> None:
    with _lock:
        if process.owner == os.getpid() and process.alive and len(_warm) < WARM_PROCESSES:
            _warm.append(process)
            return
    process.kill()


@atexit.register
def _kill_all() -> None:
    while _warm:
        _warm.pop().kill()


def _reply(answer: dict[str, Any]) -> Reply:
    said = answer["answer"]
    return Reply(said["text"], tuple(said["admissible"]), said["won"], frozenset(said["facts"]))
