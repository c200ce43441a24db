"""Objects that live in processes of their own: what they break stays there, and every call has a deadline."""

from __future__ import annotations

import atexit
import fcntl
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO, cast

from agentbench_credit.errors import AgentBenchError

WARM_PROCESSES = 2
"""Idle processes of a kind that are kept for the next one who asks."""
LONGEST_ANSWER = 64 * 2**20
"""Bytes of an answer; a process that says more is ended."""


class ServiceDiedError(AgentBenchError):
    """The process ended, hangs, or says too much; it is gone, and the next call starts another."""


class ServiceCallError(AgentBenchError):
    """The object raised an exception; its process goes on.

    Args:
        what: What is wrong.
        kind: Name of the exception's class.
        where: The service and method.
    """

    def __init__(self, what: str, *, kind: str, where: str) -> None:
        super().__init__(what, where=where)
        self.kind = kind


class Service:
    """An object in a process of its own, made at the first call.

    Arguments and answers are JSON. The process sees only the environment variables that Python and this package need,
    and ends with the process that owns it, however that ends.

    Args:
        factory: ``"module:name"`` of what makes the object; called without arguments in its process.
        variables: More environment variables for it.
    """

    def __init__(self, factory: str, *, variables: Mapping[str, str] | None = None) -> None:
        self.factory, self._variables = factory, dict(variables or {})
        self._process: _Process | None = None

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Call a method of the object.

        Args:
            method: Its name.
            *arguments: JSON values.
            seconds: Deadline; the process is killed when it passes.

        Returns:
            What the method returned, through JSON.

        Raises:
            ServiceDiedError: The process ended, or gave no answer in time. The object's state is lost.
            ServiceCallError: The method raised an exception.
        """
        if self._process is None:
            self._process = _take(self.factory, self._variables)
        try:
            answer = self._process.ask([method, *arguments], seconds)
        except BaseException:  # also Ctrl-C: what it would answer later is not for the next question
            self._process.kill()
            self._process = None
            raise
        if "error" in answer:
            kind, what = answer["error"]
            raise ServiceCallError(f"{kind}: {what}", kind=kind, where=f"{self.factory}, {method}")
        return answer["answer"]

    def close(self) -> None:
        """Give the process back, warm for the next service of the same kind."""
        if self._process is not None:
            _give_back(self._process)
        self._process = None

    def kill(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
        self._process = None


class _Process:
    """One process with one object."""

    def __init__(self, factory: str, variables: Mapping[str, str]) -> None:
        self.kind = (factory, tuple(sorted(variables.items())))
        self._errors = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed with the process
        lifeline, self._lifeline = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", __name__, factory, str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**_environment(), **variables},
                pass_fds=(lifeline,),
                start_new_session=True,  # Ctrl-C is for the process that owns it
            )
        finally:
            os.close(lifeline)
        self.owner = os.getpid()

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self._popen.poll() is None

    def ask(self, request: list[Any], seconds: float) -> dict[str, Any]:
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        deadline = time.monotonic() + seconds
        with suppress(OSError):  # it has died, which reading will show
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        parts, size = [b""], 0
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not parts[-1].endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._failure(f"no answer to {request[0]} within {seconds:g} s")
                parts.append(os.read(stdout.fileno(), 1 << 20))
                size += len(parts[-1])
                if not parts[-1]:
                    raise self._died(request[0])
                if size > LONGEST_ANSWER:
                    raise self._failure(f"the answer to {request[0]} is longer than {LONGEST_ANSWER} bytes")
        return cast(dict[str, Any], json.loads(b"".join(parts)))

    def _failure(self, what: str) -> ServiceDiedError:
        return ServiceDiedError(what, where=self.kind[0], mend="the next call starts a new process")

    def _died(self, method: str) -> ServiceDiedError:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(5)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
        return self._failure(f"the process ended with code {self._popen.poll()} at {method} ({lines[-1]})")

    def kill(self) -> None:
        self._errors.close()
        if self.owner != os.getpid():
            return
        self._popen.kill()
        self._popen.wait()
        os.close(self._lifeline)
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


_warm: dict[tuple[str, tuple[tuple[str, str], ...]], list[_Process]] = {}
_lock = threading.Lock()


def _take(factory: str, variables: Mapping[str, str]) -> _Process:
    with _lock:
        idle = _warm.get((factory, tuple(sorted(variables.items()))), [])
        while idle:
            process = idle.pop()
            if process.alive:
                return process
            process.kill()
    return _Process(factory, variables)


def _give_back(process: _Process) -> None:
    with _lock:
        idle = _warm.setdefault(process.kind, [])
        if process.alive and len(idle) < WARM_PROCESSES:
            idle.append(process)
            return
    process.kill()


@atexit.register
def _kill_all() -> None:
    for idle in _warm.values():
        while idle:
            idle.pop().kill()


_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "VIRTUAL_ENV", "PYTHONHASHSEED")
_PASSED_ON_PREFIXES = ("AGENTBENCH_", "ALFWORLD_", "WEBSHOP_", "OMP_", "OPENBLAS_", "COVERAGE_")


def _environment() -> dict[str, str]:
    """Return what a process needs to know, and no key or token that may be among the variables."""
    passed = {k: v for k, v in os.environ.items() if k in _PASSED_ON or k.startswith(_PASSED_ON_PREFIXES)}
    return passed | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def _end_with_owner(lifeline: int) -> None:
    """Let the kernel end this process when the other end of a pipe is closed, whatever it is doing then."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    with selectors.DefaultSelector() as selector:
        selector.register(lifeline, selectors.EVENT_READ)
        if selector.select(0):  # closed before we listened
            sys.exit(1)


def _serve(factory: str, lifeline: int) -> None:
    """Answer lines ``[method, argument…]`` with ``{"answer": …}`` or ``{"error": [class, message]}``."""
    _end_with_owner(lifeline)
    # Whatever the object prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, _, name = factory.partition(":")
    service = getattr(importlib.import_module(module), name)()
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"answer": getattr(service, method)(*arguments)}
        except (Exception, SystemExit) as error:  # some planners leave by SystemExit
            answer = {"error": [type(error).__name__, str(error)]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
