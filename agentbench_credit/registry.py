"""One generic, lazy registry for environments, credit methods, trainers, benchmarks and policies."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import threading
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Generic, TypeVar, cast

from agentbench_credit.errors import RegistryError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names mapped to objects, or to ``"module:object"`` strings that are imported on first use.

    Installed packages add entries through the entry-point group; the first look-up reads it. A plugin that
    cannot be imported is a warning when everything is listed and a `RegistryError` when it is asked for.

    Args:
        kind: What the entries are, for messages (``"credit method"``).
        group: Entry-point group to read (``"agentbench_credit.credit"``).
        builtin: Returns the built-in entries (name → ``"module:object"``); called once, at the first look-up.
        base: Class that every entry must be an instance of.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        *,
        base: type[T],
        builtin: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.kind, self.group = kind, group
        self._base, self._builtin = base, builtin
        self._entries: dict[str, T | str] = {}
        self._aliases: dict[str, str] = {}
        self._discovered = self._frozen = False
        self._lock = threading.RLock()

    def register(self, name: str, entry: T | str, *, aliases: tuple[str, ...] = ()) -> None:
        """Add an entry.

        Args:
            name: The name it is asked for by.
            entry: The object, or ``"module:object"`` to import on first use.
            aliases: Other names for the same entry.

        Raises:
            RegistryError: The registry is frozen, a name is taken by another entry, or the object has a wrong type.
        """
        with self._lock:
            self._discover()
            self._add(name, entry, aliases)

    def _add(self, name: str, entry: T | str, aliases: tuple[str, ...] = ()) -> None:
        if self._frozen:
            raise RegistryError(f"the {self.kind} registry is frozen", where=name)
        if not isinstance(entry, str):
            self._check(name, entry)
        for label in (name, *aliases):
            taken = label in self._aliases or (label in self._entries and self._entries[label] != entry)
            if taken:
                raise RegistryError(f"the {self.kind} name is taken by {self.origin(label)}", where=label)
        self._entries[name] = entry
        self._aliases.update(dict.fromkeys(aliases, name))

    def get(self, name: str) -> T:
        """Return the entry of a name or alias, importing it if needed.

        Args:
            name: A registered name or alias.

        Returns:
            The entry.

        Raises:
            RegistryError: Unknown name (with the nearest known ones), or the plugin behind it cannot be imported.
        """
        with self._lock:
            self._discover()
            label = self._aliases.get(name, name)
            if label not in self._entries:
                known = sorted(self._entries)
                near = difflib.get_close_matches(name, [*known, *self._aliases], n=3)
                hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known) or 'none'}"
                raise RegistryError(f"unknown {self.kind}", where=name, mend=hint)
            entry = self._entries[label]
            if isinstance(entry, str):
                entry = self._entries[label] = self._resolve(label, entry)
            return entry

    def names(self) -> list[str]:
        """Return all registered names, sorted, aliases left out."""
        with self._lock:
            self._discover()
            return sorted(self._entries)

    def items(self) -> dict[str, T]:
        """Return every entry that can be loaded; one that cannot is warned about by name."""
        loaded: dict[str, T] = {}
        for name in self.names():
            try:
                loaded[name] = self.get(name)
            except RegistryError as error:
                warnings.warn(str(error), stacklevel=2)
        return loaded

    def origin(self, name: str) -> str:
        """Return where an entry comes from: its file and line, or its import string while it is not loaded."""
        entry = self._entries[self._aliases.get(name, name)]
        if isinstance(entry, str):
            return entry
        target = inspect.unwrap(entry) if callable(entry) else type(entry)
        try:
            return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
        except (TypeError, OSError):
            return repr(entry)

    def freeze(self) -> None:
        """Refuse any later registration."""
        with self._lock:
            self._discover()
            self._frozen = True

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        for name, target in self._builtin().items():
            self._add(name, target)
        for point in entry_points(group=self.group):
            try:
                self._add(point.name, point.value)
            except RegistryError as error:
                warnings.warn(f"plugin ignored: {error}", stacklevel=4)

    def _resolve(self, name: str, target: str) -> T:
        module_name, _, attribute = target.partition(":")
        try:
            entry = getattr(importlib.import_module(module_name), attribute)
        except Exception as error:  # a plugin may fail in any way; the user needs its name
            reason = f"{type(error).__name__}: {error}"
            raise RegistryError(f"{self.kind} {name!r} cannot be loaded from {target} ({reason})") from error
        self._check(name, entry)
        return cast(T, entry)

    def _check(self, name: str, entry: object) -> None:
        if not isinstance(entry, self._base):
            got = type(entry).__name__
            raise RegistryError(f"a {self.kind} must be a {self._base.__name__}, not {got}", where=name)


def subpackages(package: ModuleType, attribute: str) -> dict[str, str]:
    """Return ``{name: "package.name:ATTRIBUTE"}`` for every folder of a package, importing none of them.

    Args:
        package: A package whose folders each define one registry entry.
        attribute: The entry's name inside each folder's ``__init__.py``.

    Returns:
        Lazy targets by folder name.
    """
    folders = (module for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    return {folder.name: f"{package.__name__}.{folder.name}:{attribute}" for folder in folders}
