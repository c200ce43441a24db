"""What all commands share: options and recipes, one-line errors with exit codes, and progress."""

from __future__ import annotations

import errno
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, make_dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from agentbench_credit.errors import AgentBenchError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console

T = TypeVar("T", bound="DataclassInstance")

LINE_INTERVAL = 10.0
"""Seconds between two progress lines where standard error is no terminal."""
QUIET = 2.0
"""Seconds within which work that is done leaves no progress line there."""


def parse(config_type: type[T], argv: list[str] | None) -> T:
    """Parse a command's options, one for each field; exits with 2 on a wrong option and with 0 after ``--help``.

    ``--recipe FILE.toml`` sets other defaults; an option on the command line wins over it.

    Args:
        config_type: Frozen dataclass with a default for, and a docstring under, each field; its own is the description.
        argv: The arguments, None for those of the process.

    Returns:
        The configuration.

    Raises:
        ConfigError: The recipe cannot be read or does not fit the fields.
    """
    import tyro

    recipe_help = "TOML file with other defaults, under the options' names with underscores."
    recipe_type = Annotated[Path | None, tyro.conf.arg(metavar="FILE.toml", help=recipe_help)]
    options_type: Any = make_dataclass("Options", [("recipe", recipe_type, None)], bases=(config_type,), frozen=True)
    spec = sys.modules[config_type.__module__].__spec__
    prog = f"python -m {spec.name.removesuffix('.__main__')}" if spec else None

    def options(default: Any) -> Any:
        return tyro.cli(options_type, prog=prog, description=inspect.getdoc(config_type), args=argv, default=default)

    chosen = options(options_type())
    if chosen.recipe is not None:
        from agentbench_credit.recipe import read_recipe

        chosen = options(options_type(**read_recipe(chosen.recipe, config_type)))
    return config_type(**{field.name: getattr(chosen, field.name) for field in fields(config_type)})


def run_command(main: Callable[[list[str] | None], None]) -> None:
    """Run a command's main function with the process's arguments; errors that a user can mend are one line.

    The exit code is 0 on success, 2 for an `AgentBenchError` and for a full disk, 130 after Ctrl-C. Any other
    exception is a fault of the program and keeps its traceback.

    Args:
        main: The command.

    Raises:
        OSError: As `main` raised it, for any other reason than a full disk.
    """
    try:
        main(None)
    except AgentBenchError as error:
        _stop(f"error: {error}", 2)
    except KeyboardInterrupt:
        _stop("interrupted: the same command goes on where this one stopped", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = f" at {error.filename}" if error.filename else ""
        _stop(f"error: the disk is full{place} — make room; the same command goes on where this one stopped", 2)


def _stop(line: str, code: int) -> None:
    print(printable(line), file=sys.stderr)
    sys.exit(code)


def printable(text: str) -> str:
    """Escape whatever could move a terminal's cursor or colour its text, line breaks too.

    Args:
        text: Possibly hostile text, from a model or an environment.

    Returns:
        The text on one line.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class Progress(Protocol):
    """Shows how far some work is."""

    def advance(self, count: int = 1, text: str | None = None) -> None:
        """Count finished items.

        Args:
            count: Items finished since the last call.
            text: Shown behind the bar from now on, None to leave it as it was.
        """
        ...


_open: list[str] = []
"""Labels of the running progress displays, the outermost first."""


@contextmanager
def progress(label: str, total: int) -> Iterator[Progress]:
    """Show count, elapsed and remaining time on standard error while the block runs.

    A terminal gets a bar; a file or pipe gets a plain line every `LINE_INTERVAL` seconds, and one at the end if the
    block took longer than `QUIET`. Inside another progress block, nothing is left behind at the end.

    Args:
        label: What is going on.
        total: Number of items.

    Yields:
        The object to call ``advance`` on.
    """
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    show = _bar if terminal else _lines
    _open.append(label)
    try:
        with show(printable(label), total, nested=len(_open) > 1) as shown:
            yield shown
    finally:
        _open.pop()


@contextmanager
def _bar(label: str, total: int, *, nested: bool) -> Iterator[Progress]:
    from rich import progress as rich_progress

    columns = (
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("eta"),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[text]}", markup=False),
    )
    # What is printed meanwhile appears above the bar, unless standard output goes somewhere else.
    redirect = sys.stdout.isatty()
    with rich_progress.Progress(
        *columns, console=_terminal(), refresh_per_second=4, transient=nested, redirect_stdout=redirect
    ) as display:
        yield _Bar(display, display.add_task(label, total=total, text=""))


@contextmanager
def _lines(label: str, total: int, *, nested: bool) -> Iterator[Progress]:
    lines = _Lines(label, total)
    try:
        yield lines
    finally:
        if not nested and time.monotonic() - lines.began > QUIET:
            lines.print()


@cache
def _terminal() -> Console:
    """Return the one console of all bars, which lets them be nested."""
    from rich.console import Console

    return Console(stderr=True)


class _Bar:
    """Progress on a terminal."""

    def __init__(self, display: Any, task: Any) -> None:
        self._display, self._task = display, task

    def advance(self, count: int = 1, text: str | None = None) -> None:
        shown = {} if text is None else {"text": printable(text)}
        self._display.update(self._task, advance=count, **shown)


class _Lines:
    """Progress in a log."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done, self._text = label, total, 0, ""
        self.began = self._printed = time.monotonic()

    def advance(self, count: int = 1, text: str | None = None) -> None:
        self._done += count
        self._text = self._text if text is None else printable(text)
        if time.monotonic() - self._printed >= LINE_INTERVAL and self._done < self._total:
            self.print()

    def print(self) -> None:
        self._printed = time.monotonic()
        elapsed = self._printed - self.began
        left = elapsed / self._done * (self._total - self._done) if self._done else 0.0
        eta = f", {_clock(left)} left" if left else ""
        text = f", {self._text}" if self._text else ""
        print(f"{self._label}: {self._done}/{self._total}, {_clock(elapsed)} elapsed{eta}{text}", file=sys.stderr)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
