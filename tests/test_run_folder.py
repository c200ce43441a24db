"""A folder belongs to one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentbench_credit.errors import ConfigError
from agentbench_credit.run_folder import RUN_FILE, claim

RUN = {"method": "gear", "seed": 0, "sampling": {"temperature": 0.4}, "presets": ("a", "b")}


def test_the_same_run_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    claim(folder, RUN)
    claim(folder, RUN)
    assert json.loads((folder / RUN_FILE).read_text()) == RUN | {"presets": ["a", "b"]}
    with pytest.raises(ConfigError, match=r"seed: 0 there, 1 asked.*--out") as caught:
        claim(folder, RUN | {"seed": 1})
    assert "method" not in str(caught.value)
    with pytest.raises(ConfigError, match="extra: None there, 1 asked"):
        claim(folder, RUN | {"extra": 1})
    assert json.loads((folder / RUN_FILE).read_text())["seed"] == 0


def test_named_keys_may_differ_and_are_stored(tmp_path: Path) -> None:
    claim(tmp_path, RUN)
    claim(tmp_path, RUN | {"seed": 2}, may_differ=("seed",))
    assert json.loads((tmp_path / RUN_FILE).read_text())["seed"] == 2


def test_a_torn_description_is_named(tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).write_text("{")
    with pytest.raises(ConfigError, match=r"run\.json: not a run description"):
        claim(tmp_path, RUN)
