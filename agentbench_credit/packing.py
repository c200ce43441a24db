"""Sequences laid out as a tree, so that a beginning which several of them share is computed once.

Rollouts of one group start from the same prompt, and a student's and a teacher's prompt have much in common. In a pack
each token sees the earlier tokens of its own sequence only, at the positions that they have there; a model with full
attention gives the same numbers as for each sequence alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentbench_credit.batch import Bools, Ints
from agentbench_credit.samples import Sample

PACK_LENGTH = 4
"""Longest pack in lengths of the longest sequence: longer ones share more, but attention grows with the length."""

LEAST_SHARED = 0.25
"""A sequence that shares a smaller part with the one before starts a new pack: it would only make attention longer."""


@dataclass(eq=False)
class Pack:
    """Sequences in one row."""

    size: int = 0
    """Tokens in the row."""
    branches: list[tuple[Sample, Ints, int]] = field(default_factory=list)
    """Each sequence, where its tokens are in the row, and how many of them it shares with the sequence before."""

    def add(self, sample: Sample, shared: int) -> None:
        """Append a sequence whose first `shared` tokens are those of the sequence before."""
        new = np.arange(self.size, self.size + len(sample.ids) - shared)
        path = np.concatenate([self.branches[-1][1][:shared], new]) if shared else new
        self.branches.append((sample, path, shared))
        self.size += len(new)


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Packs side by side, padded on the right; padding sees itself only."""

    ids: Ints
    """Token ids [B, L]."""
    positions: Ints
    """Position of each token in its own sequence [B, L]."""
    visible: Bools
    """Whether a token (second to last axis) sees another (last axis) [B, 1, L, L]."""
    predicting: Ints
    """Index in the flattened row and column axes of the tokens that predict the response tokens [R]."""
    tokens: Ints
    """The response tokens on the token axis [R]."""


def packed_batches(samples: Sequence[Sample], batch_tokens: int) -> Iterator[PackedBatch]:
    """Lay samples out and cut them into batches.

    Args:
        samples: The sequences.
        batch_tokens: Most tokens of a batch, padding included, unless one sequence has more.

    Yields:
        Batches that hold every response token once.
    """
    longest = max((len(sample.ids) for sample in samples), default=0)
    batch: list[Pack] = []
    for pack in sorted(_packs(samples, min(batch_tokens, PACK_LENGTH * longest)), key=lambda pack: pack.size):
        if batch and (len(batch) + 1) * pack.size > batch_tokens:
            yield _lay_out(batch)
            batch = []
        batch.append(pack)
    if batch:
        yield _lay_out(batch)


def _packs(samples: Sequence[Sample], limit: int) -> Iterator[Pack]:
    """Yield packs of at most `limit` tokens; in dictionary order, neighbours share the most."""
    pack = Pack()
    for sample in sorted(samples, key=lambda sample: sample.ids.astype(">i4").tobytes()):
        shared = _common_start(pack.branches[-1][0].ids, sample.ids) if pack.branches else 0
        full = pack.size + len(sample.ids) - shared > limit
        if pack.branches and (full or shared < LEAST_SHARED * len(sample.ids)):
            yield pack
            pack, shared = Pack(), 0
        pack.add(sample, shared)
    if pack.branches:
        yield pack


def _common_start(first: Ints | np.ndarray, second: np.ndarray) -> int:
    """Return how many tokens two sequences have in common at their start."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length


def _lay_out(packs: Sequence[Pack]) -> PackedBatch:
    width = max(pack.size for pack in packs)
    ids, positions = np.zeros((2, len(packs), width), np.int64)
    visible = np.zeros((len(packs), 1, width, width), bool)
    visible[:, :, np.arange(width), np.arange(width)] = True
    predicting, tokens = [], []
    for row, pack in enumerate(packs):
        for sample, path, shared in pack.branches:
            new, length = path[shared:], len(path)
            ids[row, new] = sample.ids[shared:]
            positions[row, new] = np.arange(shared, length)
            visible[row, 0][np.ix_(new, path)] = np.tri(length - shared, length, shared, dtype=bool)
            predicting.append(row * width + path[sample.positions - 1])
            tokens.append(sample.tokens)
    return PackedBatch(ids, positions, visible, np.concatenate(predicting), np.concatenate(tokens))
