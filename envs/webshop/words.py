"""Word lists that ship with the package."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import cast


def known_words(name: str) -> tuple[str, ...]:
    """Return a list of ``words.json``: ``"colours"`` in the official order, or ``"not nouns"``."""
    return tuple(_words()[name])


@cache
def _words() -> dict[str, list[str]]:
    text = resources.files(__package__).joinpath("words.json").read_text(encoding="utf-8")
    return cast(dict[str, list[str]], json.loads(text))
