"""Recipes: TOML with the fields' own names and types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from agentbench_credit.errors import ConfigError
from agentbench_credit.recipe import read_recipe


@dataclass(frozen=True)
class Config:
    """One field of each kind."""

    method: tuple[str, ...] = ("gear",)
    updates: int = 50
    lr: float = 1e-4
    model: str = "tiny"
    out: Path = Path("runs")
    limit: int | None = None
    checkpoint: Path | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    resume: bool = True
    params: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def read(folder: Path, text: str) -> dict[str, Any]:
    """Write a recipe and read it."""
    path = folder / "recipe.toml"
    path.write_text(text, "utf-8")
    return read_recipe(path, Config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('method = ["grpo", "gear"]', ("grpo", "gear")),
        ("method = []", ()),
        ("updates = 3", 3),
        ("lr = 3e-4", 3e-4),
        ("lr = 1", 1.0),
        ('model = "Qwen3-4B"', "Qwen3-4B"),
        ('out = "a/b"', Path("a/b")),
        ("limit = 7", 7),
        ('checkpoint = "c"', Path("c")),
        ('device = "cuda"', "cuda"),
        ("resume = false", False),
        ("[params]\ngamma = 0.9\nlambda = 1", {"gamma": 0.9, "lambda": 1.0}),
        ("[extra]\na = [1]", {"a": [1]}),
    ],
)
def test_values_get_their_fields_types(tmp_path: Path, text: str, expected: Any) -> None:
    [value] = read(tmp_path, text).values()
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "key", "kind"),
    [
        ('updates = "3"', "updates", "int"),
        ("updates = 3.0", "updates", "int"),
        ("updates = true", "updates", "int"),
        ("resume = 1", "resume", "bool"),
        ("lr = true", "lr", "float"),
        ('lr = "high"', "lr", "float"),
        ("model = 3", "model", "str"),
        ("model = 2024-01-01", "model", "str"),
        ("out = 3", "out", "Path"),
        ('limit = "all"', "limit", r"int \| None"),
        ('device = "tpu"', "device", r"Literal\['cpu', 'cuda'\]"),
        ("device = []", "device", "Literal"),
        ('method = "gear"', "method", r"tuple\[str, \.\.\.\]"),
        ("method = [1]", "method", r"tuple\[str, \.\.\.\]"),
        ('[params]\ngamma = "x"', "params", r"dict\[str, float\]"),
        ("params = 1", "params", r"dict\[str, float\]"),
    ],
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, text: str, key: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"recipe\.toml: {key} is .* — expected {kind}"):
        read(tmp_path, text)


def test_an_unknown_key_gets_a_suggestion_or_the_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recipe\.toml: unknown key 'update' — did you mean updates\?"):
        read(tmp_path, "update = 3")
    with pytest.raises(ConfigError, match="unknown key 'zzzz' — known: method, updates, lr"):
        read(tmp_path, "zzzz = 3")


def test_an_unreadable_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot read the recipe: No such file"):
        read_recipe(tmp_path / "none.toml", Config)
    with pytest.raises(ConfigError, match="cannot read the recipe: Is a directory"):
        read_recipe(tmp_path, Config)
    with pytest.raises(ConfigError, match=r"recipe\.toml: not a TOML file: .*line 2"):
        read(tmp_path, "updates = 3\nlr = = 2")
    (tmp_path / "latin.toml").write_bytes(b'model = "\xff"')
    with pytest.raises(ConfigError, match=r"latin\.toml: not a TOML file"):
        read_recipe(tmp_path / "latin.toml", Config)


def test_an_empty_recipe_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing") == {}
