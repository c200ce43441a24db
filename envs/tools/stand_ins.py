"""Stand-ins for modules that a benchmark's package imports and that are not needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def stand_ins(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Let imports of some modules find stand-ins; afterwards others find the real ones again.

    Args:
        modules: By module name, what is imported from it. A module that is loaded already stays what it is.

    Yields:
        None.
    """
    added = [name for name in modules if name not in sys.modules]
    for name in added:
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(modules[name])
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]
