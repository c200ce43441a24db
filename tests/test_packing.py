"""Packs: what is shared, what each token sees, and how large batches get."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.packing import PACK_LENGTH, PackedBatch, packed_batches
from agentbench_credit.samples import Sample

sequences = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=7), max_size=12)


def samples_of(*rows: list[int]) -> list[Sample]:
    """Return a sample of each row, everything but its first token being a response."""
    samples, first = [], 0
    for index, row in enumerate(rows):
        responses = np.arange(1, len(row))
        samples.append(Sample(np.array(row, np.int32), responses, first + responses - 1, index))
        first += len(row) - 1
    return samples


def seen_by(batch: PackedBatch, place: int) -> tuple[list[int], list[int]]:
    """Return ids and positions of the tokens that a token sees, itself included, in the order of their places."""
    row, column = divmod(int(place), batch.ids.shape[1])
    sees = batch.visible[row, 0, column]
    return batch.ids[row, sees].tolist(), batch.positions[row, sees].tolist()


@given(rows=sequences, batch_tokens=st.integers(1, 60))
def test_each_token_sees_its_own_sequence_at_its_own_positions(rows: list[list[int]], batch_tokens: int) -> None:
    samples = samples_of(*rows)
    found = {}
    for batch in packed_batches(samples, batch_tokens):
        for place, token in zip(batch.predicting, batch.tokens, strict=True):
            assert token not in found
            found[int(token)] = seen_by(batch, place)
    expected = [(row[: n + 1], list(range(n + 1))) for row in rows for n in range(len(row) - 1)]
    assert found == dict(enumerate(expected))


@given(rows=sequences, batch_tokens=st.integers(1, 60))
def test_batches_keep_to_their_budget_unless_one_sequence_is_longer(rows: list[list[int]], batch_tokens: int) -> None:
    for batch in packed_batches(samples_of(*rows), batch_tokens):
        longest = max(len(row) for row in rows)
        assert batch.ids.size <= batch_tokens or batch.ids.shape == (1, batch.ids.shape[1])
        assert batch.ids.shape[1] <= max(min(batch_tokens, PACK_LENGTH * longest), longest)
        assert batch.visible.diagonal(axis1=2, axis2=3).all(), "a token that sees nothing gives NaN"


def test_what_sequences_have_in_common_is_there_once() -> None:
    (batch,) = packed_batches(samples_of([1, 2, 3, 4], [1, 2, 5], [1, 2, 3, 4], [1, 2, 3, 6]), 100)
    assert batch.ids.tolist() == [[1, 2, 3, 4, 6, 5]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 3, 2]]
    expected = ["100000", "110000", "111000", "111100", "111010", "110001"]
    assert ["".join(map(str, row)) for row in batch.visible[0, 0].astype(int)] == expected


def test_ids_are_compared_as_numbers() -> None:
    (batch,) = packed_batches(samples_of([300, 2, 9], [1, 2, 9], [300, 2, 8]), 100)
    assert batch.ids.tolist() == [[1, 2, 9, 0], [300, 2, 8, 9]]


def test_sequences_with_little_in_common_are_not_laid_into_one_row() -> None:
    (batch,) = packed_batches(samples_of([1, 2, 3, 4, 5], [1, 6, 7, 8, 9], [1, 6, 7, 8, 2]), 100)
    assert batch.ids.tolist() == [[1, 2, 3, 4, 5, 0], [1, 6, 7, 8, 2, 9]]


def test_nothing_to_pack() -> None:
    assert list(packed_batches([], 10)) == []
