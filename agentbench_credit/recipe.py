"""Recipes: TOML files whose keys are the field names of a command's configuration."""

from __future__ import annotations

import difflib
import tomllib
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agentbench_credit.errors import ConfigError


def read_recipe(path: Path, config_type: type[Any]) -> dict[str, Any]:
    """Read a recipe, checked against the dataclass it is for.

    Args:
        path: TOML file, flat but for fields that are dictionaries.
        config_type: Dataclass whose field names are the known keys.

    Returns:
        Values by field name, in the fields' own types (an array becomes a tuple, a path's text a `Path`).

    Raises:
        ConfigError: The file is missing or no TOML, a key is unknown, or a value has another type than its field.
    """
    try:
        recipe = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the recipe: {error.strerror}", where=str(path)) from error
    except ValueError as error:  # bad TOML and bad UTF-8 alike
        raise ConfigError(f"not a TOML file: {error}", where=str(path)) from error
    names = [field.name for field in fields(config_type)]
    hints = get_type_hints(config_type)
    values: dict[str, Any] = {}
    for key, value in recipe.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            mend = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
            raise ConfigError(f"unknown key {key!r}", where=str(path), mend=mend)
        try:
            values[key] = _as(hints[key], value)
        except TypeError:
            kind = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key]).replace("typing.", "")
            raise ConfigError(f"{key} is {value!r}", where=str(path), mend=f"expected {kind}") from None
    return values


def _as(kind: Any, value: Any) -> Any:
    """Return a TOML value as the type of its field; TypeError if it is of another type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _as_any(args, value)
    if origin is Literal and value in args:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_as(args[0], item) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: _as(args[1], item) for key, item in value.items()}
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and type(value) is int:
        return float(value)
    # type() and not isinstance(): True is an int to the latter
    if kind is Any or type(value) is kind:
        return value
    raise TypeError


def _as_any(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return _as(kind, value)
        except TypeError:
            continue
    raise TypeError
