"""Trajectories as Parquet; `agentbench_credit.trajectory_io` describes the layout and is the way in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentbench_credit.errors import TrajectoryFileError
from agentbench_credit.trajectory import SCHEMA_VERSION, Trajectory, Turn
from agentbench_credit.trajectory_fields import (
    CHANGED,
    FORMAT,
    TRAJECTORY,
    TURN,
    Field,
    check_format,
    check_names,
    load,
    store,
)

ROWS = 64
"""Trajectories in a row group, which is what a reader or writer holds in memory."""


def _type(field: Field) -> pa.DataType:
    scalar = pa.type_for_alias(field.arrow)
    return pa.list_(pa.field("element", scalar, nullable=False)) if field.listed else scalar


def _columns(fields: dict[str, Field]) -> list[pa.Field]:
    return [pa.field(name, _type(field), nullable=field.optional) for name, field in fields.items()]


_TURN_TYPE = pa.struct(_columns(TURN))
_TURNS_TYPE = pa.list_(pa.field("element", _TURN_TYPE, nullable=False))
SCHEMA = pa.schema(
    [*_columns(TRAJECTORY), pa.field("turns", _TURNS_TYPE, nullable=False)],
    metadata={"format": FORMAT, "schema_version": str(SCHEMA_VERSION)},
)
"""The columns, and the metadata that marks the file."""


def write_parquet(stream: BinaryIO, trajectories: Iterable[Trajectory], where: str) -> None:
    """Write trajectories, `ROWS` at a time.

    Args:
        stream: Where the file goes.
        trajectories: What to write.
        where: Place for messages.

    Raises:
        TrajectoryFileError: A trajectory would come back changed.
    """
    rest = iter(trajectories)
    written = 0
    with pq.ParquetWriter(stream, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
        while rows := list(islice(rest, ROWS)):
            places = [f"{where}, trajectory {written + i}" for i in range(len(rows))]
            writer.write_table(_to_table(rows, places))
            written += len(rows)


def _to_table(rows: Sequence[Trajectory], places: Sequence[str]) -> pa.Table:
    for row, place in zip(rows, places, strict=True):
        check_format(FORMAT, row.schema_version, place)
    records = [store(vars(row), TRAJECTORY, place, cells=True) for row, place in zip(rows, places, strict=True)]
    turns = [
        store(vars(turn), TURN, f"{place}, turn {t}", cells=True)
        for row, place in zip(rows, places, strict=True)
        for t, turn in enumerate(row.turns)
    ]
    offsets = np.cumsum([0, *(len(row.turns) for row in rows)], dtype=np.int32)
    struct = pa.StructArray.from_arrays(_arrays(turns, TURN), fields=list(_TURN_TYPE))
    arrays = [*_arrays(records, TRAJECTORY), pa.ListArray.from_arrays(offsets, struct, type=_TURNS_TYPE)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _arrays(records: Sequence[dict[str, Any]], fields: dict[str, Field]) -> list[pa.Array]:
    return [pa.array([record[name] for record in records], type=_type(field)) for name, field in fields.items()]


def iter_parquet(path: Path) -> Iterator[Trajectory]:
    """Read trajectories, one row group at a time.

    Args:
        path: The file.

    Yields:
        The trajectories in the order of the rows.

    Raises:
        TrajectoryFileError: The file is missing, torn, foreign or of another schema version.
    """
    row = 0
    for table in _row_groups(path):
        for trajectory in _from_table(table, str(path), row):
            yield trajectory
            row += 1


def _row_groups(path: Path) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_schema(file.schema_arrow, str(path))
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                table.validate(full=True)
                yield table
    except (pa.ArrowException, OSError) as error:
        mend = "the file is torn or no Parquet file: restore it or make it anew"
        raise TrajectoryFileError(f"cannot be read ({error})", where=str(path), mend=mend) from error


def _check_schema(found: pa.Schema, where: str) -> None:
    metadata = found.metadata or {}
    form, version = metadata.get(b"format", b""), metadata.get(b"schema_version", b"")
    check_format(form.decode(errors="replace"), int(version) if version.isdigit() else None, where)
    check_names(found.names, SCHEMA.names, where)
    turns = found.field("turns").type
    if pa.types.is_list(turns) and pa.types.is_struct(turns.value_type):
        check_names([field.name for field in turns.value_type], list(TURN), f"{where}, turns")
    for field in SCHEMA:
        if found.field(field.name) != field:
            what = f"{field.name} is {found.field(field.name).type}, expected {field.type}"
            raise TrajectoryFileError(what, where=where, mend=CHANGED)


def _from_table(table: pa.Table, path: str, first_row: int) -> Iterator[Trajectory]:
    lists = table["turns"].combine_chunks()
    structs = lists.values
    turns = _records([structs.field(name) for name in TURN], TURN)
    records = _records([table[name] for name in TRAJECTORY], TRAJECTORY)
    bounds = pairwise(lists.offsets.to_pylist())
    for row, (record, (start, end)) in enumerate(zip(records, bounds, strict=True), first_row):
        where = f"{path}, row {row}"
        parts = [Turn(**load(turns[i], TURN, f"{where}, turn {i - start}", cells=True)) for i in range(start, end)]
        yield Trajectory(**load(record, TRAJECTORY, where, cells=True), turns=tuple(parts))


def _records(columns: Sequence[pa.Array | pa.ChunkedArray], fields: dict[str, Field]) -> list[dict[str, Any]]:
    cells = [_cells(column, field) for column, field in zip(columns, fields.values(), strict=True)]
    return [dict(zip(fields, values, strict=True)) for values in zip(*cells, strict=True)]


def _cells(column: pa.Array | pa.ChunkedArray, field: Field) -> list[Any]:
    if not field.listed or field.arrow == "string":
        cells: list[Any] = column.to_pylist()
        return cells
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = array.values.to_numpy()
    ranges = zip(pairwise(array.offsets.to_pylist()), array.is_valid().to_pylist(), strict=True)
    return [values[start:end].copy() if valid else None for (start, end), valid in ranges]
