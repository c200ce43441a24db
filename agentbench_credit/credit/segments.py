"""Segments of a response: from an anchor token to the first token that ends it, never across turns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agentbench_credit.batch import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Segments:
    """M disjoint runs of tokens, in order; each begins with its anchor, which belongs to it."""

    anchors: Ints
    """Token index of each segment's anchor [M]."""
    lengths: Ints
    """Number of tokens of each segment, the anchor included [M]."""

    @cached_property
    def tokens(self) -> Ints:
        """Index of every token that lies in a segment, in order."""
        before = np.cumsum(self.lengths) - self.lengths
        return np.repeat(self.anchors - before, self.lengths) + np.arange(self.lengths.sum())

    def with_anchor_values(self, values: Floats) -> Floats:
        """Return a copy of the values [K] in which every token of a segment has its anchor's value."""
        return self._spread(values, values[self.anchors])

    def with_mean_values(self, values: Floats) -> Floats:
        """Return a copy of the values [K] in which every token of a segment has the segment's mean."""
        if not len(self.anchors):
            return values.copy()
        starts = np.cumsum(self.lengths) - self.lengths
        return self._spread(values, np.add.reduceat(values[self.tokens], starts) / self.lengths)

    def _spread(self, values: Floats, of_segments: Floats) -> Floats:
        spread = values.copy()
        spread[self.tokens] = np.repeat(of_segments, self.lengths)
        return spread


def find_segments(may_anchor: Bools, ends: Bools, token_offsets: Ints) -> Segments:
    """Read each turn from left to right and open a segment at every possible anchor that lies outside a segment.

    A segment goes on until the first later token that ends it, which lies outside and may itself be an anchor, or
    until the end of the turn. Whether the anchor itself would end a segment does not matter. Linear in tokens.

    Args:
        may_anchor: Tokens that can be anchors [K].
        ends: Tokens that end a segment [K].
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].

    Returns:
        The segments.
    """
    # Every ending token and every turn's first token begins a block. No segment leaves its block, and inside a block
    # nothing ends one: the block's first possible anchor opens a segment that lasts until the block's end.
    begins = ends.copy()
    begins[token_offsets[:-1][np.diff(token_offsets) > 0]] = True
    blocks = np.append(np.flatnonzero(begins), len(ends))
    candidates = np.flatnonzero(may_anchor)
    block = np.cumsum(begins, dtype=np.int32 if len(begins) < 2**31 else np.int64)[candidates]
    first = np.diff(block, prepend=-1) > 0
    anchors = candidates[first]
    return Segments(anchors, blocks[block[first]] - anchors)


def fixed_segments(may_anchor: Bools, length: int, token_offsets: Ints) -> Segments:
    """Read each turn from left to right and open a segment at every possible anchor that lies outside a segment.

    Args:
        may_anchor: Tokens that can be anchors [K].
        length: Tokens of a segment, fewer at the end of a turn.
        token_offsets: Tokens of turn t are ``token_offsets[t]:token_offsets[t + 1]`` [T + 1].

    Returns:
        The segments.
    """
    candidates = np.flatnonzero(may_anchor)
    turn_ends = token_offsets[np.searchsorted(token_offsets, candidates, side="right")]
    # Where the next segment can open if one opens at each candidate.
    following = np.searchsorted(candidates, np.minimum(candidates + length, turn_ends)).tolist()
    opened = []
    at = 0
    while at < len(following):
        opened.append(at)
        at = following[at]
    anchors = candidates[opened]
    return Segments(anchors, np.minimum(length, turn_ends[opened] - anchors))
