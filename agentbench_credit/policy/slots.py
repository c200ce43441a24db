"""Keys and values of several sequences, each of its own length, in storage that is written in place."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache

GROWTH = 256
"""Tokens by which the storage grows at least, so that it seldom does."""


class SlotCache(Cache):
    """A cache with one slot a sequence: token t of a sequence stands at place t of its slot.

    A forward pass works on a run of neighbouring slots, which `select` names first.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: list[torch.Tensor] = []
        """Of each layer [S, H, L, D]; places that a sequence has not reached hold anything."""
        self.values: list[torch.Tensor] = []
        """As `keys`."""
        self._first, self._length = 0, 0
        self._places = torch.zeros(0)

    def select(self, first: int, places: torch.Tensor, length: int) -> None:
        """Say where the next forward pass writes.

        Args:
            first: First slot of the run.
            places: Places of the tokens [R, T] of R neighbouring slots.
            length: Places that the pass may look at.
        """
        self._first, self._places, self._length = first, places, length

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [R, H, T, D] of a layer; returns all that the selected slots hold [R, H, L, D]."""
        if layer_idx == len(self.keys):
            self.keys.append(key_states.new_zeros(0, key_states.shape[1], 0, key_states.shape[3]))
            self.values.append(value_states.new_zeros(0, value_states.shape[1], 0, value_states.shape[3]))
        return self._write(self.keys, layer_idx, key_states), self._write(self.values, layer_idx, value_states)

    def _write(self, kept: list[torch.Tensor], layer: int, fresh: torch.Tensor) -> torch.Tensor:
        slots = self._first + len(fresh)
        if kept[layer].shape[0] < slots or kept[layer].shape[2] < self._length:
            kept[layer] = _grown(kept[layer], slots, self._length)
        run = kept[layer][self._first : slots]
        run.scatter_(2, self._places[:, None, :, None].expand(fresh.shape), fresh)
        return run[:, :, : self._length]

    def copy(self, slot: int, to: int, length: int) -> None:
        """Copy the first tokens of a slot to another one."""
        for kept in (*self.keys, *self.values):
            kept[to, :, :length] = kept[slot, :, :length]

    def read(self, slot: int, length: int) -> torch.Tensor:
        """Return a copy of the first tokens of a slot [2 · layers, H, length, D]."""
        return torch.stack([kept[slot, :, :length] for kept in (*self.keys, *self.values)])

    def write(self, slot: int, states: torch.Tensor) -> None:
        """Write what `read` returned, or the beginning of it, into a slot, which need not exist yet."""
        self.grow(slot + 1, states.shape[2])
        for kept, state in zip((*self.keys, *self.values), states, strict=True):
            kept[slot, :, : states.shape[2]] = state

    def grow(self, slots: int, length: int = 0) -> None:
        """Make room for slots and tokens; what exists stays."""
        for kept in (self.keys, self.values):
            for layer, tensor in enumerate(kept):
                if tensor.shape[0] < slots or tensor.shape[2] < length:
                    kept[layer] = _grown(tensor, slots, length)


def _grown(tensor: torch.Tensor, slots: int, length: int) -> torch.Tensor:
    """Return a larger tensor that holds another one, twice as large where it grows at all."""
    old_slots, heads, old_length, width = tensor.shape
    slots = max(slots, 2 * old_slots) if slots > old_slots else old_slots
    length = max(-(-length // GROWTH) * GROWTH, 2 * old_length) if length > old_length else old_length
    larger = tensor.new_zeros(slots, heads, length, width)
    larger[:old_slots, :, :old_length] = tensor
    return larger
