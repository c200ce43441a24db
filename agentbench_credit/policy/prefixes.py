"""Beginnings of prompts whose keys and values are kept, so that they are computed once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from agentbench_credit.trajectory import Ids

BLOCK = 16
"""Tokens by which beginnings are looked up; a shorter one is not worth it."""
BUDGET = 2**28
"""Bytes of keys and values that are kept, the least recently used given up first."""


@dataclass(frozen=True, eq=False)
class Prefix:
    """A beginning of a sequence."""

    ids: Ids
    """Its tokens [N]."""
    states: torch.Tensor
    """Keys and values [2 · layers, H, N, D]."""


class Prefixes:
    """Looks up the longest known beginning of a prompt in time linear in its length."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Prefix] = OrderedDict()
        self._blocks: dict[int, int] = {}
        self._bytes = 0

    def find(self, prompt: Ids) -> tuple[Prefix, int] | None:
        """Return what is known of a prompt.

        Args:
            prompt: Token ids [P].

        Returns:
            A kept sequence and how many of its first tokens are the prompt's, at least `BLOCK` and less than P; None
            if there is none.
        """
        for key in reversed(_chain(prompt[:-1])):
            if (name := self._blocks.get(key)) is not None:
                prefix = self._kept[name]
                length = common_length(prefix.ids, prompt[:-1])
                if length >= BLOCK:  # else two chains with one hash
                    self._kept.move_to_end(name)
                    return prefix, length
        return None

    def keep(self, prefix: Prefix) -> None:
        """Keep a sequence, as far as the budget allows."""
        chain = _chain(prefix.ids)
        if not chain:
            return
        name = chain[-1]
        if name in self._kept:
            self._drop(name)
        self._kept[name] = prefix
        self._blocks.update(dict.fromkeys(chain, name))
        self._bytes += prefix.states.nbytes
        while self._bytes > BUDGET:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: int) -> None:
        prefix = self._kept.pop(name)
        self._bytes -= prefix.states.nbytes
        for key in _chain(prefix.ids):
            if self._blocks.get(key) == name:
                del self._blocks[key]


def common_length(first: Ids, second: Ids) -> int:
    """Return how many tokens two sequences begin with alike."""
    n = min(len(first), len(second))
    differ = np.flatnonzero(first[:n] != second[:n])
    return int(differ[0]) if len(differ) else n


def _chain(ids: Ids) -> list[int]:
    """Return a hash of the first block, of the first two, and so on."""
    found, last = [], 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        last = hash((last, ids[start : start + BLOCK].tobytes()))
        found.append(last)
    return found
