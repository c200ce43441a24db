"""The stored fields of `Turn` and `Trajectory`: what each accepts, and how JSON and Arrow hold it without loss."""

from __future__ import annotations

import base64
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from agentbench_credit.errors import TrajectoryFileError
from agentbench_credit.trajectory import SCHEMA_VERSION, FinishReason, State

Convert = Callable[[Any], Any]

FORMAT = "agentbench_credit.trajectories"
"""Marks a file as one of these, in the header of JSON lines and in the metadata of Parquet."""
CHANGED = "the file was changed after it was written: restore or remove it"
"""Advice for a file with our mark but not our fields."""
ESCAPE = "\ufdd0"
"""Starts a character that UTF-8 cannot hold; Unicode keeps it for programs' own use, so texts do not contain it."""
MAX_DEPTH = 64
"""Levels of lists and dictionaries within a field; deeper ones could be written but not read."""

_UNSTORABLE = re.compile(f"[\ud800-\udfff{ESCAPE}]")
_ESCAPED = re.compile(f"{ESCAPE}([0-9a-f]{{4}})")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MISFIT = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a check or conversion raises on a value of a wrong type."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Field:
    """How one field is checked and stored."""

    kind: str
    """What the field holds, for messages."""
    fits: Callable[[Any], bool]
    """Whether a value has the field's type."""
    arrow: str
    """Arrow type of the value, or of the elements if `listed`."""
    to_json: Convert = _same
    """Field value to JSON value."""
    from_json: Convert = _same
    """JSON value to field value."""
    to_cell: Convert = _same
    """Field value to Arrow value."""
    from_cell: Convert = _same
    """Arrow value to field value."""
    listed: bool = False
    """Whether Arrow holds a list."""
    optional: bool = False
    """Whether None is allowed."""


def store(values: Mapping[str, Any], fields: Mapping[str, Field], where: str, *, cells: bool) -> dict[str, Any]:
    """Check and convert the fields of a turn or trajectory for writing.

    Args:
        values: Value of each field; others are left out.
        fields: What to store.
        where: Place for messages.
        cells: Convert for Arrow, else for JSON.

    Returns:
        Stored value of each field.

    Raises:
        TrajectoryFileError: A value has a wrong type, or would come back changed.
    """
    record: dict[str, Any] = {}
    for name, field in fields.items():
        value = values[name]
        if value is None and field.optional:
            record[name] = None
            continue
        try:
            record[name] = (field.to_cell if cells else field.to_json)(_fitting(value, field))
        except _MISFIT as error:
            mend = "convert it before it enters the trajectory"
            raise TrajectoryFileError(_misfit(name, field, value), where=where, mend=mend) from error
    return record


def load(record: Any, fields: Mapping[str, Field], where: str, *, cells: bool) -> dict[str, Any]:
    """Check and convert what was stored; the inverse of `store`.

    Args:
        record: What the file holds for one turn or trajectory, with exactly these fields.
        fields: What was stored.
        where: Place for messages.
        cells: The record comes from Arrow, else from JSON.

    Returns:
        Value of each field.

    Raises:
        TrajectoryFileError: A value has a wrong type.
    """
    values: dict[str, Any] = {}
    for name, field in fields.items():
        stored = record[name]
        if stored is None and field.optional:
            values[name] = None
            continue
        try:
            values[name] = _fitting((field.from_cell if cells else field.from_json)(stored), field)
        except _MISFIT as error:
            raise TrajectoryFileError(_misfit(name, field, stored), where=where, mend=CHANGED) from error
    return values


def _fitting(value: Any, field: Field) -> Any:
    if not field.fits(value):
        raise TypeError
    return value


def check_format(form: object, version: object, where: str) -> None:
    """Refuse a foreign file and one of another schema version.

    Args:
        form: The mark found in the file, None if there is none.
        version: The schema version found in the file.
        where: Place for messages.

    Raises:
        TrajectoryFileError: The mark is not `FORMAT`, or the version is not `SCHEMA_VERSION`.
    """
    if form != FORMAT or type(version) is not int:
        mend = "write trajectory files with agentbench_credit.trajectory_io"
        raise TrajectoryFileError("the file holds no trajectories of this package", where=where, mend=mend)
    if version != SCHEMA_VERSION:
        newer = "update agentbench_credit" if version > SCHEMA_VERSION else "read it with the older agentbench_credit"
        what = f"schema version {version}, this installation reads and writes {SCHEMA_VERSION}"
        raise TrajectoryFileError(what, where=where, mend=f"{newer}, or make it anew")


def check_names(found: Iterable[str], expected: Iterable[str], where: str) -> None:
    """Refuse a record or file that lacks a field or has another one.

    Args:
        found: Names of the fields there.
        expected: Names of the fields that must be there.
        where: Place for messages.

    Raises:
        TrajectoryFileError: The two differ; the message names the fields.
    """
    found, expected = set(found), set(expected)
    if found != expected:
        kinds = {"missing": expected - found, "unknown": found - expected}
        what = "; ".join(f"{kind} fields: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)
        raise TrajectoryFileError(what, where=where, mend=CHANGED)


def dumps(value: object) -> str:
    """Return strict, compact JSON in ASCII."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """Parse strict JSON.

    Args:
        text: The JSON text, as UTF-8 if it is bytes.

    Returns:
        Its value.

    Raises:
        ValueError: It is no strict JSON, nested too deeply, or no UTF-8.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _misfit(name: str, field: Field, value: object) -> str:
    return f"{name} is {reprlib.repr(value)}, expected {field.kind}{' or None' if field.optional else ''}"


def _escape(text: str) -> str:
    return text if text.isascii() else _UNSTORABLE.sub(lambda match: f"{ESCAPE}{ord(match[0]):04x}", text)


def _unescape(text: str) -> str:
    return text if text.isascii() else _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _from_float(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _to_float(value: object) -> float:
    if isinstance(value, str):
        return _NON_FINITE[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise TypeError


def _from_logprobs(values: NDArray[np.float32]) -> list[Any]:
    return values.tolist() if np.isfinite(values).all() else [_from_float(value) for value in values.tolist()]


def _list(value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    raise TypeError


def _to_logprobs(values: object) -> NDArray[np.float32]:
    with np.errstate(over="raise"):
        return np.array([_to_float(value) for value in _list(values)], dtype=np.float64).astype(np.float32)


def _to_ids(values: object) -> NDArray[np.int32]:
    ids = np.array(values) if _list(values) else np.zeros(0, np.int64)
    if ids.dtype != np.int64 or (ids != ids.astype(np.int32)).any():
        raise TypeError
    return ids.astype(np.int32)


def _plain(value: Any, depth: int = 0) -> Any:
    """Escape the strings of a JSON value; refuse what JSON would change: tuples, other keys, NumPy numbers, NaN."""
    if depth > MAX_DEPTH:
        raise ValueError
    if type(value) is str:
        return _escape(value)
    if type(value) is dict:
        return {_escape(key): _plain(item, depth + 1) for key, item in value.items()}
    if type(value) is list:
        return [_plain(item, depth + 1) for item in value]
    if value is None or type(value) is bool or (type(value) is int and -(2**63) <= value < 2**64):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    raise TypeError


def _unplain(value: Any) -> Any:
    if isinstance(value, str):
        return _unescape(value)
    if isinstance(value, dict):
        return {_unescape(key): _unplain(item) for key, item in value.items()}
    return [_unplain(item) for item in value] if isinstance(value, list) else value


def _to_actions(value: object) -> tuple[str, ...]:
    return tuple(_unescape(text) for text in _list(value))


def _from_actions(value: tuple[str, ...]) -> list[str]:
    return [_escape(text) for text in value]


def _array(kind: str, dtype: type[np.generic], to_json: Convert, from_json: Convert) -> Field:
    def fits(value: Any) -> bool:
        return isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == 1

    return Field(kind, fits, np.dtype(dtype).name, to_json, from_json, listed=True)


def _object(kind: str, fits: Callable[[Any], bool], to_json: Convert, from_json: Convert) -> Field:
    def to_cell(value: Any) -> str:
        return dumps(to_json(value))

    def from_cell(cell: str) -> Any:
        return from_json(loads(cell))

    return Field(kind, fits, "string", to_json, from_json, to_cell, from_cell)


def _one_of(*values: str) -> Field:
    return Field(f"one of {', '.join(values)}", lambda value: type(value) is str and value in values, "string")


def _optional(field: Field) -> Field:
    return replace(field, optional=True)


_TEXT = Field("a string", lambda value: type(value) is str, "string", _escape, _unescape, _escape, _unescape)
_BOOL = Field("a bool", lambda value: type(value) is bool, "bool")
_FLOAT = Field("a float", lambda value: type(value) is float, "float64", _from_float, _to_float)
_SEED = Field("an int from 0 to 2^64 - 1", lambda value: type(value) is int and 0 <= value < 2**64, "uint64")
_KEY = Field(
    "bytes",
    lambda value: type(value) is bytes,
    "binary",
    lambda value: base64.b64encode(value).decode(),
    lambda text: base64.b64decode(text, validate=True),
)
_ACTIONS = Field(
    "a tuple of strings",
    lambda value: type(value) is tuple and all(type(text) is str for text in value),
    "string",
    *(_from_actions, _to_actions, _from_actions, _to_actions),
    listed=True,
)
_IDS = _array("a one-dimensional int32 array", np.int32, np.ndarray.tolist, _to_ids)
_LOGPROBS = _array("a one-dimensional float32 array", np.float32, _from_logprobs, _to_logprobs)
_JSON = _object(
    "a dict of what JSON keeps exactly: str keys; str, 64-bit int, finite float, bool, None, list and dict values",
    lambda value: type(value) is dict,
    _plain,
    _unplain,
)
_SECONDS = _object(
    "a dict of floats",
    lambda value: type(value) is dict and all(type(item) is float for item in value.values()),
    lambda value: {_escape(key): _from_float(item) for key, item in value.items()},
    lambda value: {_unescape(key): _to_float(item) for key, item in value.items()},
)

TURN: dict[str, Field] = {
    "observation": _TEXT,
    "state_key": _KEY,
    "admissible_actions": _optional(_ACTIONS),
    "prompt_ids": _IDS,
    "response_ids": _IDS,
    "logprobs": _LOGPROBS,
    "finish_reason": _one_of(*get_args(FinishReason)),
    "response": _TEXT,
    "action": _TEXT,
    "action_valid": _BOOL,
    "reward": _optional(_FLOAT),
    "teacher_prompt_ids": _optional(_IDS),
    "info": _JSON,
}
"""Fields of a stored turn."""
TRAJECTORY: dict[str, Field] = {
    "env_id": _TEXT,
    "env_kwargs": _JSON,
    "task_id": _TEXT,
    "group_id": _TEXT,
    "seed": _SEED,
    "policy_id": _TEXT,
    "sampling": _JSON,
    "final_state_key": _KEY,
    "state": _one_of(*get_args(State)),
    "success": _BOOL,
    "reference": _optional(_TEXT),
    "error": _optional(_TEXT),
    "timings": _SECONDS,
}
"""Fields of a stored trajectory beside its turns; the schema version stands once, at the head of the file."""
