"""Segments against a token-by-token reading."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import references
from agentbench_credit.credit.segments import find_segments

TURNS = st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), max_size=6)


def columns(turns: list[list[tuple[bool, bool]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flags = np.array([token for turn in turns for token in turn], dtype=bool).reshape(-1, 2)
    return flags[:, 0], flags[:, 1], np.cumsum([0, *map(len, turns)])


@given(TURNS)
def test_every_token_has_the_anchor_that_reading_gives_it(turns: list[list[tuple[bool, bool]]]) -> None:
    may_anchor, ends, offsets = columns(turns)
    segments = find_segments(may_anchor, ends, offsets)
    expected = list(range(len(ends)))
    inside = []
    for turn, start in zip(turns, offsets.tolist(), strict=False):
        anchors = references.segment_anchors([opens for opens, _ in turn], [closes for _, closes in turn])
        for j, anchor in enumerate(anchors):
            if anchor is not None:
                expected[start + j] = start + anchor
                inside.append(start + j)
    assert segments.tokens.tolist() == inside
    assert segments.with_anchor_values(np.arange(float(len(ends)))).tolist() == expected


def test_the_rules_one_by_one() -> None:
    # may anchor, ends: an anchor that would itself end a segment opens one; the ending token 3 is outside;
    # the ending token 5 opens the next; the second turn starts afresh.
    first = [(False, False), (True, True), (True, False), (False, True), (True, False), (True, True), (False, False)]
    second = [(False, False), (True, False)]
    segments = find_segments(*columns([first, [], second]))
    assert segments.anchors.tolist() == [1, 4, 5, 8]
    assert segments.lengths.tolist() == [2, 1, 2, 1]
    assert segments.tokens.tolist() == [1, 2, 4, 5, 6, 8]


def test_without_an_end_a_segment_lasts_to_the_end_of_its_turn() -> None:
    segments = find_segments(np.array([0, 1, 0, 0, 0, 1], bool), np.zeros(6, bool), np.array([0, 3, 6]))
    assert (segments.anchors.tolist(), segments.lengths.tolist()) == ([1, 5], [2, 1])


def test_the_input_is_left_alone() -> None:
    ends, values = np.zeros(2, bool), np.array([1.0, 2.0])
    segments = find_segments(np.array([True, False]), ends, np.array([0, 2]))
    assert segments.with_anchor_values(values).tolist() == [1.0, 1.0]
    assert values.tolist() == [1.0, 2.0]
    assert not ends.any()
