"""One generic, lazy registry for environments, credit methods, trainers, benchmarks and policies."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from operator import attrgetter
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
        builtin: Returns the built-in entries, objects or ``"module:object"``; called once, at the first look-up.
        base: Class that every entry must be an instance of.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        *,
        base: type[T],
        builtin: Callable[[], Mapping[str, T | str]] = dict,
    ) -> None:
        self.kind, self.group = kind, group
        self._base, self._builtin = base, builtin
        self._entries: dict[str, T | str] = {}
        self._origins: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._discovered = self._frozen = False
        self._lock = threading.RLock()

    def register(self, name: str, entry: T | str, *, aliases: tuple[str, ...] = ()) -> None:
        """Add an entry; adding the same one again changes nothing.

        Args:
            name: The name it is asked for by.
            entry: The object, or ``"module:object"`` to import on first use.
            aliases: Other names for the same entry.

        Raises:
            RegistryError: The registry is frozen, a name is taken by another entry, or the object has a wrong type.
        """
        caller = sys._getframe(1)
        origin = entry if isinstance(entry, str) else f"{caller.f_code.co_filename}:{caller.f_lineno}"
        with self._lock:
            self._discover()
            self._add(name, entry, origin, aliases)

    def get(self, name: str) -> T:
        """Return the entry of a name or alias, importing it if needed.

        Args:
            name: A registered name or alias.

        Returns:
            The entry.

        Raises:
            RegistryError: Unknown name (with the nearest known ones), or the plugin behind it cannot be imported; it
                stays registered, so that a later call tries again.
        """
        with self._lock:
            label = self._label(name)
            entry = self._entries[label]
        if not isinstance(entry, str):
            return entry
        # Imported outside the lock: another thread may be importing the same module, which may register something.
        loaded = self._load(label, entry)
        with self._lock:
            self._entries[label] = loaded
        return loaded

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
        """Return where an entry comes from: its import string, or file and line of the call that registered it.

        Args:
            name: A registered name or alias.

        Returns:
            ``"module:object"`` or ``"file:line"``.

        Raises:
            RegistryError: Unknown name.
        """
        with self._lock:
            return self._origins[self._label(name)]

    def freeze(self) -> None:
        """Refuse any later registration."""
        with self._lock:
            self._discover()
            self._frozen = True

    def _add(self, name: str, entry: T | str, origin: str, aliases: tuple[str, ...] = ()) -> None:
        if self._frozen:
            raise RegistryError(f"the {self.kind} registry is frozen", where=name)
        if not isinstance(entry, str):
            self._check(name, entry)
        known = name in self._entries and entry in (self._entries[name], self._origins[name])
        for label in (name, *aliases):
            own = known if label == name else self._aliases.get(label) == name
            if not own and (label in self._entries or label in self._aliases):
                raise RegistryError(f"the {self.kind} name is taken by {self.origin(label)}", where=label)
        if not known:
            self._entries[name], self._origins[name] = entry, origin
        self._aliases.update(dict.fromkeys(aliases, name))

    def _label(self, name: str) -> str:
        """Return the name that a name or alias stands for."""
        self._discover()
        label = self._aliases.get(name, name)
        if label not in self._entries:
            known = sorted(self._entries)
            near = difflib.get_close_matches(name.lower(), [*known, *self._aliases], n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known) or 'none'}"
            raise RegistryError(f"unknown {self.kind}", where=name, mend=hint)
        return label

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        try:
            for name, target in self._builtin().items():
                self._add(name, target, target if isinstance(target, str) else self.group)
        except BaseException:
            self._discovered = False
            raise
        for point in entry_points(group=self.group):
            try:
                self._add(point.name, point.value, point.value)
            except RegistryError as error:
                owner = point.dist.name if point.dist else "unknown package"
                warnings.warn(f"plugin {point.value} of {owner} ignored: {error}", stacklevel=2)

    def _load(self, name: str, target: str) -> T:
        module_name, _, attribute = target.partition(":")
        try:
            entry = attrgetter(attribute)(importlib.import_module(module_name))
        except (Exception, SystemExit) as error:  # a plugin may fail in any way; the user needs its name
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
