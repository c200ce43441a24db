from __future__ import annotations

import dataclasses
import json
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentbench_credit.errors import TrajectoryFileError
from agentbench_credit.trajectory import SCHEMA_VERSION, Trajectory, Turn
from agentbench_credit.trajectory_fields import TRAJECTORY, TURN
from agentbench_credit.trajectory_io import (
    TrajectoryLog,
    iter_trajectories,
    read_trajectories,
    write_trajectories,
)

SUFFIXES = (".parquet", ".jsonl")
LOST = {"schema_version"}  # stands at the head of the file

TURN_VALUES: dict[str, Any] = {
    "observation": "# _ P\n\x00\x1b[2J\u202e🙂\u2028",
    "state_key": b"\x00\xff",
    "admissible_actions": ("up", "", "a||b"),
    "prompt_ids": np.array([0, 2**31 - 1, -(2**31)], np.int32),
    "response_ids": np.array([7, 8], np.int32),
    "logprobs": np.array([-0.1, -0.0], np.float32),
    "finish_reason": "length",
    "response": "\ud83d\ude00 \udfff \ufdd0 \ufdd0fdd0 \\ud800",
    "action": "up",
    "action_valid": False,
    "reward": -0.1,
    "teacher_prompt_ids": np.array([], np.int32),
    "info": {"a": [1, 2.5, None, True, {"\udc00": "NaN"}], "big": 2**64 - 1},
}
TRAJECTORY_VALUES: dict[str, Any] = {
    "env_id": "agentbench/Toy-v0",
    "env_kwargs": {"preset": "6x6", "limit": 15},
    "task_id": "t/1",
    "group_id": "g",
    "seed": 2**64 - 1,
    "policy_id": "p",
    "sampling": {"temperature": 0.7, "top_k": 0},
    "final_state_key": b"",
    "state": "ended",
    "success": True,
    "reference": None,
    "error": None,
    "timings": {"generate": 0.25, "environment": math.inf},
}


def make_turn(**changes: Any) -> Turn:
    return Turn(**(TURN_VALUES | changes))


def make_trajectory(*turns: Turn, **changes: Any) -> Trajectory:
    return Trajectory(**(TRAJECTORY_VALUES | changes), turns=turns)


def numbered(count: int) -> list[Trajectory]:
    return [make_trajectory(make_turn(), make_turn(reward=None), task_id=f"t/{i}", seed=i) for i in range(count)]


def assert_same(one: object, other: object, place: str = "") -> None:
    """Compare type by type and bit by bit; any NaN equals any NaN."""
    assert type(one) is type(other), place
    if isinstance(one, (Turn, Trajectory)):
        for field in dataclasses.fields(one):
            assert_same(vars(one)[field.name], vars(other)[field.name], f"{place}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), place
        assert_same(one.tolist(), other.tolist(), place)
    elif isinstance(one, (tuple, list)):
        assert isinstance(other, (tuple, list))
        assert len(one) == len(other), place
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{place}[{i}]")
    elif isinstance(one, dict):
        assert isinstance(other, dict)
        assert list(one) == list(other), place
        assert_same(list(one.values()), list(other.values()), place)
    elif isinstance(one, float):
        assert isinstance(other, float)
        assert (math.isnan(one) and math.isnan(other)) or struct.pack("d", one) == struct.pack("d", other), place
    else:
        assert one == other, place


TEXTS = st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud800\udfff\ufdd0\x00\x850afd"), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)


def arrays(elements: st.SearchStrategy[Any], dtype: type[np.generic]) -> st.SearchStrategy[NDArray[Any]]:
    return st.lists(elements, max_size=6).map(lambda values: np.array(values, dtype))


IDS = arrays(st.integers(-(2**31), 2**31 - 1), np.int32)
TURNS = st.builds(
    Turn,
    observation=TEXTS,
    state_key=st.binary(max_size=6),
    admissible_actions=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    prompt_ids=IDS,
    response_ids=IDS,
    logprobs=arrays(st.floats(width=32), np.float32),
    finish_reason=st.sampled_from(["stop", "length", "error"]),
    response=TEXTS,
    action=TEXTS,
    action_valid=st.booleans(),
    reward=st.none() | st.floats(),
    teacher_prompt_ids=st.none() | IDS,
    info=OBJECTS,
)
TRAJECTORIES = st.builds(
    Trajectory,
    env_id=TEXTS,
    env_kwargs=OBJECTS,
    task_id=TEXTS,
    group_id=TEXTS,
    seed=st.integers(0, 2**64 - 1),
    policy_id=TEXTS,
    sampling=OBJECTS,
    turns=st.lists(TURNS, max_size=3).map(tuple),
    final_state_key=st.binary(max_size=6),
    state=st.sampled_from(["ended", "truncated", "error"]),
    success=st.booleans(),
    reference=st.none() | TEXTS,
    error=st.none() | TEXTS,
    timings=st.dictionaries(TEXTS, st.floats(), max_size=2),
    schema_version=st.just(SCHEMA_VERSION),
)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=40, deadline=None)
@given(trajectories=st.lists(TRAJECTORIES, max_size=3))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, suffix: str, trajectories: list[Trajectory]) -> None:
    path = tmp_path_factory.mktemp("round") / f"file{suffix}"
    write_trajectories(path, trajectories)
    assert_same(read_trajectories(path), trajectories)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_of_special_numbers_and_texts(tmp_path: Path, suffix: str) -> None:
    tiny, special = np.float32(1e-45), [np.nan, np.inf, -np.inf, -0.0, 3.4028235e38]
    logprobs = np.array([tiny, *special, *np.random.default_rng(0).standard_normal(1000)], np.float32)
    turns = [make_turn(reward=reward, logprobs=logprobs) for reward in (math.nan, math.inf, -0.0, 5e-324, None)]
    trajectories = [make_trajectory(*turns), make_trajectory(), make_trajectory(error="x" * 100_000, state="error")]
    write_trajectories(tmp_path / f"a{suffix}", trajectories)
    back = read_trajectories(tmp_path / f"a{suffix}")
    assert_same(back, trajectories)
    back[0].turns[0].logprobs[0] = 1.0  # arrays are the reader's own
    assert np.isnan(back[0].turns[0].logprobs[1])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_collection_and_many_row_groups(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new" / "folder" / f"a{suffix}"
    write_trajectories(path, iter(()))
    assert read_trajectories(path) == []
    write_trajectories(path, iter(numbered(150)))
    assert_same(read_trajectories(path), numbered(150))
    assert list(path.parent.iterdir()) == [path]


def test_the_table_of_fields_is_complete() -> None:
    assert list(TURN) == [field.name for field in dataclasses.fields(Turn)]
    stored = [field.name for field in dataclasses.fields(Trajectory) if field.name not in ("turns", "schema_version")]
    assert list(TRAJECTORY) == stored


def test_json_lines_are_what_the_documentation_says(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_trajectories(path, [make_trajectory(make_turn(reward=-math.inf, logprobs=np.array([np.nan], np.float32)))])
    assert path.read_bytes().isascii()
    header, line = (json.loads(text, parse_constant=pytest.fail) for text in path.read_text().splitlines())
    assert header == {"format": "agentbench_credit.trajectories", "schema_version": 1}
    assert set(line) == set(TRAJECTORY_VALUES) | {"turns"}
    (turn,) = line["turns"]
    assert set(turn) == set(TURN_VALUES)
    assert (turn["reward"], turn["logprobs"], turn["state_key"]) == ("-Infinity", ["NaN"], "AP8=")
    assert turn["response"] == "\ufdd0d83d\ufdd0de00 \ufdd0dfff \ufdd0fdd0 \ufdd0fdd0fdd0 \\ud800"
    assert (turn["observation"], turn["prompt_ids"]) == (TURN_VALUES["observation"], [0, 2**31 - 1, -(2**31)])
    assert line["timings"] == {"generate": 0.25, "environment": "Infinity"}


def test_parquet_is_what_the_documentation_says(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_trajectories(path, numbered(3))
    schema = pq.read_schema(path)
    assert schema.metadata[b"format"] == b"agentbench_credit.trajectories"
    assert schema.metadata[b"schema_version"] == b"1"
    turn = {field.name: field.type for field in schema.field("turns").type.value_type}
    assert turn["prompt_ids"].value_type == turn["teacher_prompt_ids"].value_type == pa.int32()
    assert turn["logprobs"].value_type == pa.float32()
    assert turn["state_key"] == schema.field("final_state_key").type == pa.binary()
    row = pq.read_table(path).to_pylist()[2]
    assert (row["task_id"], row["seed"], row["sampling"]) == ("t/2", 2, '{"temperature":0.7,"top_k":0}')


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt_ids", np.array([1], np.int64)),
        ("prompt_ids", [1]),
        ("prompt_ids", np.zeros((1, 1), np.int32)),
        ("logprobs", np.array([1.0])),
        ("logprobs", None),
        ("reward", np.float32(1)),
        ("reward", 1),
        ("action_valid", np.True_),
        ("state_key", "text"),
        ("observation", b"bytes"),
        ("finish_reason", "tool"),
        ("admissible_actions", ["up"]),
        ("info", {"a": (1, 2)}),
        ("info", {1: "a"}),
        ("info", {"a": math.nan}),
        ("info", {"a": np.int64(1)}),
        ("info", {"a": 2**64}),
        ("info", None),
    ],
)
def test_value_that_would_change_is_refused(tmp_path: Path, suffix: str, field: str, value: object) -> None:
    path = tmp_path / f"a{suffix}"
    broken = make_trajectory(make_turn(), make_turn(**{field: value}))
    with pytest.raises(TrajectoryFileError, match=rf"a{suffix}, trajectory 1, turn 1: {field} is .*, expected "):
        write_trajectories(path, [make_trajectory(), broken])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", [{"seed": -1}, {"seed": True}, {"timings": {"a": 1}}, {"state": ""}, {"error": b""}])
def test_trajectory_that_would_change_is_refused(tmp_path: Path, suffix: str, change: dict[str, Any]) -> None:
    with pytest.raises(TrajectoryFileError, match=rf"trajectory 0: {next(iter(change))} is "):
        write_trajectories(tmp_path / f"a{suffix}", [make_trajectory(**change)])
    with pytest.raises(TrajectoryFileError, match="schema version 2"):
        write_trajectories(tmp_path / f"a{suffix}", [make_trajectory(schema_version=2)])


def test_deep_nesting_is_refused_in_time(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for suffix in SUFFIXES:
        with pytest.raises(TrajectoryFileError, match="info is "):
            write_trajectories(tmp_path / f"a{suffix}", [make_trajectory(make_turn(info={"a": nested}))])


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        write_trajectories(path, numbered(2))
        with pytest.raises(TrajectoryFileError):
            write_trajectories(path, [make_trajectory(), make_trajectory(seed=-1)])
        assert_same(read_trajectories(path), numbered(2))


def expect(path: Path, message: str) -> None:
    with pytest.raises(TrajectoryFileError, match=message) as caught:
        read_trajectories(path)
    assert path.name in caught.value.where
    assert caught.value.mend


def test_unknown_suffix(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    expect(path, r"unknown suffix '\.json'")
    with pytest.raises(TrajectoryFileError, match="unknown suffix"):
        write_trajectories(path, [])
    for name in ("a.json", "a.parquet"):
        with pytest.raises(TrajectoryFileError, match=r"name (it|the file) \.(jsonl|parquet)"):
            TrajectoryLog(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_and_empty_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    expect(path, "no such file")
    path.touch()
    expect(path, "the file is empty")


def test_torn_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_trajectories(path, numbered(3))
    whole = path.read_bytes()
    for length in {1, 3, 4, 11, 12, *range(20, len(whole), 997), len(whole) - 1}:
        path.write_bytes(whole[:length])
        expect(path, "torn or no Parquet file")


def test_damaged_parquet_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    noise = np.random.default_rng(0).standard_normal(3000).astype(np.float32)  # no compression notices a change in it
    trajectories = [make_trajectory(make_turn(logprobs=noise))]
    write_trajectories(path, trajectories)
    whole = path.read_bytes()
    footer = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
    noticed = 0
    for position in range(4, footer, 211):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            assert_same(read_trajectories(path), trajectories)  # an unused byte
        except TrajectoryFileError:
            noticed += 1
    assert noticed > 40


def test_foreign_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    expect(path, "no trajectories of this package")
    path.write_text("hello, this is text")
    expect(path, "torn or no Parquet file")


def rewrite_parquet(path: Path, metadata: dict[str, str] | None = None, **columns: pa.Array | None) -> None:
    table = pq.read_table(path)
    metadata = metadata or {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    for name, column in columns.items():
        table = table.drop_columns(name) if name in table.column_names else table
        table = table if column is None else table.append_column(name, column)
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("found", "advice"), [("2", "update agentbench_credit"), ("0", "read it with the older agentbench_credit")]
)
def test_other_schema_version(tmp_path: Path, found: str, advice: str) -> None:
    parquet, lines = tmp_path / "a.parquet", tmp_path / "a.jsonl"
    write_trajectories(parquet, numbered(1))
    write_trajectories(lines, numbered(1))
    rewrite_parquet(parquet, {"format": "agentbench_credit.trajectories", "schema_version": found})
    lines.write_bytes(lines.read_bytes().replace(b'"schema_version":1', b'"schema_version":%s' % found.encode()))
    for path in (parquet, lines):
        expect(path, f"schema version {found}, this installation reads and writes 1 — {advice}")
    with pytest.raises(TrajectoryFileError, match=advice):
        TrajectoryLog(lines)


def test_parquet_with_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    cases: list[tuple[dict[str, pa.Array | None], str]] = [
        ({"seed": None, "task_id": None}, "missing fields: seed, task_id"),
        ({"extra": pa.array([1])}, "unknown fields: extra"),
        ({"seed": None, "Seed": pa.array([1])}, "missing fields: seed; unknown fields: Seed"),
        ({"seed": pa.array(["1"])}, "seed is string, expected uint64"),
        ({"turns": pa.array(["1"])}, "turns is string, expected list"),
        ({"turns": pa.array([[{"action": "a"}]])}, r"a\.parquet, turns: missing fields: action_valid, "),
    ]
    for columns, message in cases:
        write_trajectories(path, numbered(1))
        rewrite_parquet(path, **columns)
        expect(path, message)


def test_parquet_with_a_changed_value_names_row_and_turn(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_trajectories(path, numbered(70))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[66]["turns"][1]["info"] = "[1]"
    rows[68]["state"] = "lost"
    for last, message in ((70, r"row 66, turn 1: info is '\[1\]'"), (66, None)):
        kept = rows[:last] + rows[67:]
        pq.write_table(pa.Table.from_pylist(kept, schema=table.schema), path, row_group_size=10)
        expect(path, message or "row 67: state is 'lost', expected one of ended, truncated, error")


@pytest.mark.parametrize(
    "text",
    ["hello\n", '{"a": 1}\n', "[1]\n", "\n", "\xff\n", '{"format": "agentbench_credit.trajectories"}\n', "{" * 9999],
)
def test_foreign_json_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, "latin-1")
    expect(path, "line 1: the file holds no trajectories of this package")
    with pytest.raises(TrajectoryFileError, match="holds no trajectories"):
        TrajectoryLog(path)
    assert path.read_text("latin-1") == text


def edit_line(path: Path, number: int, change: dict[str, Any], turn: dict[str, Any] | None = None) -> None:
    lines = path.read_text().splitlines()
    record = json.loads(lines[number - 1])
    record = {name: value for name, value in (record | change).items() if value != "DROP"}
    if turn is not None:
        record["turns"][1] = {name: value for name, value in (record["turns"][1] | turn).items() if value != "DROP"}
    lines[number - 1] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("change", "turn", "message"),
    [
        ({"seed": "DROP"}, None, "line 3: missing fields: seed"),
        ({"turns": "DROP"}, None, "line 3: missing fields: turns"),
        ({"turns": 1}, None, "line 3: the line holds no trajectory"),
        ({"turns": [1]}, None, "line 3, turn 0: no object"),
        ({"Seed": 1}, None, "line 3: unknown fields: Seed"),
        ({"seed": 1.0}, None, r"line 3: seed is 1\.0, expected an int"),
        ({"seed": None}, None, "line 3: seed is None"),
        ({"success": 1}, None, "line 3: success is 1, expected a bool"),
        ({"final_state_key": "a"}, None, "line 3: final_state_key is 'a', expected bytes"),
        ({"final_state_key": "é"}, None, "line 3: final_state_key is"),
        ({"task_id": 7}, None, "line 3: task_id is 7, expected a string"),
        ({"timings": {"a": "nan"}}, None, "line 3: timings is"),
        ({"timings": [1.0]}, None, "line 3: timings is"),
        ({}, {"action": "DROP"}, "line 3, turn 1: missing fields: action"),
        ({}, {"more": 1}, "line 3, turn 1: unknown fields: more"),
        ({}, {"prompt_ids": [1.5]}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": [2**31]}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": [2**63]}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": [[1]]}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": [[1], []]}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": "12"}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": [True]}, "line 3, turn 1: prompt_ids is"),
        ({}, {"prompt_ids": {}}, "line 3, turn 1: prompt_ids is"),
        ({}, {"logprobs": {}}, "line 3, turn 1: logprobs is"),
        ({}, {"logprobs": ["x"]}, "line 3, turn 1: logprobs is"),
        ({}, {"logprobs": [1e300]}, "line 3, turn 1: logprobs is"),
        ({}, {"logprobs": [True]}, "line 3, turn 1: logprobs is"),
        ({}, {"reward": "1"}, "line 3, turn 1: reward is '1', expected a float or None"),
        ({}, {"admissible_actions": "up"}, "line 3, turn 1: admissible_actions is"),
        ({}, {"info": []}, "line 3, turn 1: info is"),
    ],
)
def test_json_line_with_a_wrong_field(
    tmp_path: Path, change: dict[str, Any], turn: dict[str, Any] | None, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    write_trajectories(path, numbered(3))
    edit_line(path, 3, change, turn)
    expect(path, message)
    whole = path.read_bytes()
    with pytest.raises(TrajectoryFileError, match=message):
        TrajectoryLog(path)
    assert path.read_bytes() == whole


def test_integers_are_good_floats_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_trajectories(path, numbered(1))
    edit_line(path, 2, {"timings": {"a": 1}}, {"reward": 2, "logprobs": [0, -1.5]})
    turn = read_trajectories(path)[0].turns[1]
    assert_same(turn.reward, 2.0)
    assert_same(turn.logprobs, np.array([0, -1.5], np.float32))


@pytest.mark.parametrize("bad", [b"", b"{", b"NaN", b"[NaN]", b"\xff", b"[" * 100_000])
def test_bad_line_in_the_middle_is_an_error(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "a.jsonl"
    write_trajectories(path, numbered(3))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], bad, *lines[2:]]))
    expect(path, "line 3: torn or foreign line")
    with pytest.raises(TrajectoryFileError, match="line 3: torn or foreign line"):
        TrajectoryLog(path)


def test_log_keeps_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    with TrajectoryLog(path) as log:
        assert log.trajectories == []
        for i, trajectory in enumerate(numbered(3)):
            log.append(trajectory)
            assert_same(read_trajectories(path), numbered(i + 1))
        with pytest.raises(TrajectoryFileError, match="t/1: seed is -1"):
            log.append(make_trajectory(seed=-1))
    with TrajectoryLog(path) as log:
        assert_same(log.trajectories, numbered(3))
        log.append(numbered(4)[3])
    assert_same(read_trajectories(path), numbered(4))
    write_trajectories(tmp_path / "b.jsonl", numbered(4))
    assert path.read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_torn_last_line_is_dropped_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_trajectories(path, numbered(2))
    first = path.stat().st_size
    write_trajectories(path, numbered(3))
    whole = path.read_bytes()
    for length in [*range(first + 1, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        expect(path, f"line 4: torn last line of {length - first} bytes")
        with pytest.warns(UserWarning, match=f"dropped a torn last line of {length - first} bytes"):
            log = TrajectoryLog(path)
        with log:
            assert_same(log.trajectories, numbered(2))
            log.append(numbered(3)[2])
        assert path.read_bytes() == whole


def test_last_line_of_zeros_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_trajectories(path, numbered(1))
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))
    with pytest.warns(UserWarning, match="4096 bytes"), TrajectoryLog(path) as log:
        assert len(log.trajectories) == 1
    assert path.read_bytes() == whole


def test_log_killed_within_its_header_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    TrajectoryLog(path).close()
    header = path.read_bytes()
    path.write_bytes(b"")
    TrajectoryLog(path).close()
    assert path.read_bytes() == header
    for length in (1, len(header) - 1):
        path.write_bytes(header[:length])
        expect(path, "line 1: torn header")
        with pytest.warns(UserWarning, match=f"of {length} bytes"):
            TrajectoryLog(path).close()
        assert path.read_bytes() == header


WRITER = """
import sys
from test_trajectory_io import numbered
from agentbench_credit.trajectory_io import TrajectoryLog
log = TrajectoryLog(sys.argv[1])
for trajectory in numbered(100_000)[len(log.trajectories):]:
    log.append(trajectory)
    print(trajectory.seed, flush=True)
"""


def start_writer(path: Path, code: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_run_killed_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "a.jsonl", -1
    code = WRITER.replace("100_000", "2_000")
    for kill_after in (3, 20):
        with start_writer(path, code) as writer:
            assert writer.stdout is not None
            for _ in range(kill_after):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        if path.read_bytes().endswith(b"\n"):
            TrajectoryLog(path).close()
        else:
            with pytest.warns(UserWarning, match="torn last line"):
                TrajectoryLog(path).close()
        found = [trajectory.seed for trajectory in iter_trajectories(path)]
        assert found == list(range(len(found)))
        assert acknowledged < len(found) < 2000


def test_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    code = "import sys; from agentbench_credit.trajectory_io import TrajectoryLog; log = TrajectoryLog(sys.argv[1]); "
    with start_writer(path, code + "print('open', flush=True); sys.stdin.read()") as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        with pytest.raises(TrajectoryFileError, match=r"a\.jsonl: another run is writing this log — wait"):
            TrajectoryLog(path)
        assert read_trajectories(path) == []
        writer.communicate()
    with TrajectoryLog(path), pytest.raises(TrajectoryFileError, match="another run"):
        TrajectoryLog(path)
    TrajectoryLog(path).close()


def test_append_that_fails_in_the_middle_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TrajectoryLog(path) as log:
        log.append(numbered(1)[0])
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                log.append(numbered(2)[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert_same(read_trajectories(path), numbered(1))
        log.append(numbered(2)[1])
    assert_same(read_trajectories(path), numbered(2))


@pytest.mark.parametrize(("suffix", "count"), [(".parquet", 1000), (".jsonl", 200)])
def test_iteration_holds_a_part_of_the_file_only(tmp_path: Path, suffix: str, count: int) -> None:
    path, ids = tmp_path / f"a{suffix}", np.arange(1000, dtype=np.int32)
    write_trajectories(path, (make_trajectory(make_turn(prompt_ids=ids), seed=i) for i in range(count)))
    tracemalloc.start()
    arrow = 0
    for trajectory in iter_trajectories(path):
        arrow = max(arrow, pa.total_allocated_bytes())
        assert trajectory.turns[0].prompt_ids[-1] == 999
    peak = tracemalloc.get_traced_memory()[1] + arrow
    tracemalloc.stop()
    assert peak < count * ids.nbytes / 2
