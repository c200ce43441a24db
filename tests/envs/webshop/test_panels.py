"""Panels of the made-up shop: published hashes, disjoint splits, goals that can be met and not by chance."""

from __future__ import annotations

from collections import Counter

import pytest

from agentbench_credit.check_env import validate
from agentbench_credit.env import ENVIRONMENTS, Panel
from agentbench_credit.envs.webshop import embedded_goals, panels
from agentbench_credit.envs.webshop.goals import Goal, from_data
from agentbench_credit.envs.webshop.shop import open_catalogue
from agentbench_credit.errors import EnvironmentContractError

SIZES = {"train": 1578, "validation": 424, "test": 396}


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)


def goals(split: str) -> list[Goal]:
    return [from_data(task.data) for task in panels.load_panel("embedded", split)]


def test_the_published_panels_have_their_hash_size_and_distinct_ids() -> None:
    loaded = {split: panels.load_panel("embedded", split) for split in SIZES}
    assert {split: len(panel) for split, panel in loaded.items()} == SIZES
    for split, panel in loaded.items():
        assert panel.sha256 == panels.published()["splits"][split]["sha256"]
    assert open_catalogue(None).sha256 == panels.published()["catalogue"]
    assert len({task.id for panel in loaded.values() for task in panel}) == sum(SIZES.values())


def test_no_product_and_no_instruction_is_in_two_splits() -> None:
    for field in ("product", "instruction", "name"):
        parts = [{getattr(goal, field) for goal in goals(split)} for split in SIZES]
        assert len(set().union(*parts)) == sum(map(len, parts))
    assert len({goal.instruction for split in SIZES for goal in goals(split)}) == sum(SIZES.values())


def test_goals_ask_for_what_their_product_has_and_say_so() -> None:
    catalogue = open_catalogue(None)
    for split in SIZES:
        for goal in goals(split):
            product = catalogue.product(goal.product)
            assert set(goal.attributes) <= set(product.attributes)
            assert set(goal.options) <= {value for _, values in product.options for value in values}
            assert all(text in goal.instruction for text in (*goal.attributes, *goal.options))
            assert goal.ceiling is not None
            assert product.price < goal.ceiling <= product.price + 40
            assert f"{goal.ceiling:.0f}" in goal.instruction


def test_goals_vary() -> None:
    test = goals("test")
    assert min(Counter(len(goal.attributes) for goal in test)[count] for count in (1, 2, 3)) > 50
    assert min(Counter(len(goal.options) for goal in test)[count] for count in (1, 2)) > 50
    assert len({goal.instruction.split()[0] for goal in test}) >= 5
    assert len({goal.query for goal in test}) == 32


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_expert_buys_every_goal_and_chance_buys_few(split: str) -> None:
    pytest.importorskip("tantivy")
    pytest.importorskip("rapidfuzz")
    report = validate(ENVIRONMENTS.get("webshop"), "embedded", split)
    assert report.tasks == SIZES[split]
    assert report.expert_failures == {}
    # Uniformly drawn buttons after a search for the whole instruction: 1.1 % here.
    assert len(report.random_successes) <= 0.03 * report.tasks


def test_goals_that_differ_from_the_published_ones_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_goals, "_OPENINGS", ("bring me {thing}",))
    panels._embedded.cache_clear()
    try:
        with pytest.raises(EnvironmentContractError, match="webshop embedded: the hash of train is"):
            panels.load_panel("embedded", "test")
    finally:
        panels._embedded.cache_clear()


@pytest.mark.parametrize(
    ("preset", "split", "what"), [("shop", "test", "no WebShop preset 'shop'"), ("embedded", "dev", "no split 'dev'")]
)
def test_unknown_names_are_errors_that_list_the_known(preset: str, split: str, what: str) -> None:
    with pytest.raises(EnvironmentContractError, match=what):
        ENVIRONMENTS.get("webshop").load_panel(preset, split)


def test_the_registry_offers_all_presets() -> None:
    entry = ENVIRONMENTS.get("webshop")
    for preset in entry.presets:
        assert isinstance(entry.load_panel(preset, "test"), Panel)
