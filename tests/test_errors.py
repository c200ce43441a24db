"""The typed errors."""

from __future__ import annotations

import pickle

import pytest

from agentbench_credit import errors
from agentbench_credit.errors import AgentBenchError, ConfigError

TYPES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


def test_a_message_holds_place_fault_and_advice() -> None:
    error = ConfigError("unknown key 'lr2'", where="gear.toml", mend="did you mean lr?")
    assert str(error) == "gear.toml: unknown key 'lr2' — did you mean lr?"
    assert (error.what, error.where, error.mend) == ("unknown key 'lr2'", "gear.toml", "did you mean lr?")


def test_place_and_advice_may_be_missing() -> None:
    assert str(ConfigError("too few tasks")) == "too few tasks"
    assert str(ConfigError("too few tasks", where="panel")) == "panel: too few tasks"
    assert str(ConfigError("too few tasks", mend="lower --limit")) == "too few tasks — lower --limit"


def test_a_message_is_one_line() -> None:
    error = AgentBenchError("a\nb\r\n  c", where="x\ty", mend="z\n")
    assert str(error) == "x y: a b c — z"


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_error_can_be_caught_as_one_and_sent_between_processes(kind: type[AgentBenchError]) -> None:
    assert issubclass(kind, AgentBenchError)
    error = kind("torn", where="run.parquet", mend="write it again")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)
    assert (back.what, back.where, back.mend) == (error.what, error.where, error.mend)
