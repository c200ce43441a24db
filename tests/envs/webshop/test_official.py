"""The official files: fields, prices, bad records, torn files; the panels and shop made of them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentbench_credit.cache import cache_dir
from agentbench_credit.envs.webshop import nouns, official, panels, shop
from agentbench_credit.envs.webshop.official import product_of, read_products, read_records
from agentbench_credit.envs.webshop.presets import PRESETS
from agentbench_credit.errors import EnvironmentContractError


def record(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "asin": f"b{number:04d}",
        "name": f"Wooden Spoon No {number}",
        "full_description": "A spoon.\nOf wood.",
        "small_description": ["Carved by hand", "Beech"],
        "query": " Wooden Spoons ",
        "category": "garden",
        "product_category": "Home \u203a Kitchen",
        "pricing": "$1,019.90",
        "customization_options": {"Color": [{"value": " Red/Blue ", "image": None}, {"value": "Tan"}], "Size": None},
        "images": ["https://example.org/spoon.jpg"],
    } | changes


def read(row: Any, attributes: dict[str, Any] | None = None) -> tuple[Any, Counter[str]]:
    counts: Counter[str] = Counter()
    return product_of(row, attributes or {}, counts), counts


def test_a_record_becomes_a_product() -> None:
    product, counts = read(record(7), {"b0007": {"attributes": ["solid wood"]}})
    assert (product.id, product.title, product.query) == ("B0007", "Wooden Spoon No 7", "wooden spoons")
    assert product.description == "A spoon. Of wood."
    assert product.options == (("color", ("red | blue", "tan")),)
    assert (product.attributes, product.rating, product.price_tag) == (("solid wood",), "N.A.", "$1019.9")
    assert not counts


@pytest.mark.parametrize(
    ("pricing", "tag", "low", "high", "fault"),
    [
        ("$5.00", "$5.0", 5, 5, False),
        ("$5.00$9.50", "$5.0 to $9.5", 5, 9.5, False),
        ("$5 to $9.5 to $11", "$5.0 to $9.5", 5, 9.5, False),
        ("", "$100.0", 100, 100, False),
        (None, "$100.0", 100, 100, False),
        ("five dollars", "$100.0", 100, 100, True),
        ("$five", "$100.0", 100, 100, True),
        ("$1.2.3", "$100.0", 100, 100, True),
        (5.0, "$100.0", 100, 100, True),
    ],
)
def test_prices(pricing: Any, tag: str, low: float, high: float, fault: bool) -> None:
    product, counts = read(record(pricing=pricing))
    assert product.price_tag == tag
    assert low <= product.price <= high
    assert (low == high) == (product.price in (low, high))  # a draw lies inside of its range
    assert counts["price that cannot be read"] == fault
    assert read(record(pricing=pricing))[0].price == product.price


def test_a_product_without_attributes_has_the_official_stand_in() -> None:
    assert read(record())[0].attributes == ("DUMMY_ATTR",)


@pytest.mark.parametrize("listed", ["solid wood", {"solid": "wood"}, ["solid", 3]])
def test_attributes_that_are_no_list_of_texts_make_a_bad_record(listed: object, tmp_path: Path) -> None:
    path, counts = tmp_path / "items.json", Counter[str]()
    path.write_text(json.dumps([record(0)]))
    assert list(read_products(path, {"b0000": {"attributes": listed}}, counts)) == []
    assert counts == {"bad record": 1}


def test_options_are_as_the_official_code_has_them_and_can_be_clicked() -> None:
    values = [{"value": text} for text in ("/Red", "Blue/", "red", "/RED", " ", "Red")]
    product, _ = read(record(customization_options={"Color": [{"value": "old"}], "b": [], "color": values}))
    assert product.options == (("color", ("| red", "blue |", "red", "")), ("b", ()))


@pytest.mark.parametrize("changes", [{"small_description": text} for text in ("one", ["one"])])
def test_bullets_may_be_a_single_text(changes: dict[str, Any]) -> None:
    assert read(record(**changes))[0].bullets == ("one",)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (record(asin="nan"), "id that the official code leaves out"),
        (record(asin="B0123456789"), "id that the official code leaves out"),
        (record(0), "id that was there before"),
        (record(1, asin=" b0000"), "id that was there before"),  # ids are compared as they are shown
        ({}, "bad record"),
        (None, "bad record"),
        (["asin"], "bad record"),
        ("asin", "bad record"),
        (record(1, asin=7), "bad record"),
        (record(1, asin=""), "bad record"),
        (record(1, name=None), "bad record"),
        (record(1, name=""), "bad record"),
        (record(1, query=None), "bad record"),
        (record(1, full_description=["a"]), "bad record"),
        (record(1, small_description=[1]), "bad record"),
        (record(1, customization_options=[1]), "bad record"),
        (record(1, customization_options={"a": [{}]}), "bad record"),
    ],
)
def test_what_is_left_out_is_counted(row: Any, reason: str, tmp_path: Path) -> None:
    path, counts = tmp_path / "items.json", Counter[str]()
    path.write_text(json.dumps([record(0), row, record(2)]))
    found = list(read_products(path, {}, counts))
    assert [product.id for product in found] == ["B0000", "B0002"]
    assert counts.pop("product without attributes") == 2
    assert counts == {reason: 1}


@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_records_are_read_across_the_ends_of_chunks(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "CHUNK", chunk)
    rows = [{"a": 'é"]},{[ '}, {}, {"b": [1.5, None, {"c": "\u20ac" * 9}]}]
    path = tmp_path / "items.json"
    for indent in (None, 2):
        path.write_text(json.dumps(rows, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
        assert list(read_records(path)) == rows
    path.write_text(" [ ] ")
    assert list(read_records(path)) == []


def test_a_mark_of_utf8_before_the_list_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert list(read_records(path)) == [1]


def test_a_record_without_an_end_is_not_read_to_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "CHUNK", 10)
    monkeypatch.setattr(official, "LONGEST_RECORD", 100)
    path = tmp_path / "items.json"
    path.write_text('["' + "x" * 10_000)
    with path.open() as stream:
        window = official._Window(stream)
        assert window.take() == "["
        with pytest.raises(ValueError, match="Unterminated"):
            window.value()
        assert len(stream.read()) > 9_000


@pytest.mark.parametrize(
    ("content", "before"),
    [
        (b"", 0),
        (b"  ", 0),
        (b"{}", 0),
        (b"[", 0),
        (b'[{"a": 1}', 1),
        (b'[{"a": 1}, ', 1),
        (b'[{"a": 1} {"b": 2}]', 1),
        (b'[{"a": 1}, {"b": ', 1),
        (b'[{"a": "\xff"}]', 0),
        (b"[" * 100_000, 0),
    ],
)
def test_torn_files_are_typed_errors_that_say_how_far_they_were_read(
    content: bytes, before: int, tmp_path: Path
) -> None:
    path = tmp_path / "items.json"
    path.write_bytes(content)
    with pytest.raises(EnvironmentContractError, match=f"items.json: cannot be read after {before} records"):
        list(read_records(path))


def test_a_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentContractError, match=r"cannot be read after 0 records .*No such file"):
        list(read_records(tmp_path / "items.json"))


GOALS = 1510
"""People's instructions in the official folder of the tests, ten of them beyond test and validation."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make an official folder of a few products; its tagger is announced already."""
    data = tmp_path / "data"
    data.mkdir()
    rows = [record(number, pricing="$5.00$9.00", name=f"Spoon {number} of Beech") for number in range(12)]
    attributes = {
        row["asin"]: {"attributes": ["solid wood"], "instruction": "spoon", "instruction_attributes": ["solid wood"]}
        for row in rows
    }
    told = {"instruction": "i want a spoon", "instruction_attributes": ["solid wood"], "instruction_options": ["tan"]}
    human = {row["asin"]: [told] * (GOALS // 10) for row in rows[:10]}
    for name, content in {
        "items_shuffle_1000.json": rows,
        "items_ins_v2_1000.json": attributes,
        "items_human_ins.json": human,
    }.items():
        (data / name).write_text(json.dumps(content))
    monkeypatch.setenv("WEBSHOP_DATA", str(data))
    monkeypatch.setenv("AGENTBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shop, "official_tagger", lambda: nouns.RULES)
    forget()
    yield data
    forget()


def test_a_file_that_changes_while_it_is_in_use_is_another_shop_at_once(folder: Path) -> None:
    before, panel = shop.open_catalogue(folder), panels.load_panel("webshop", "test")
    path = folder / "items_shuffle_1000.json"
    path.write_text(path.read_text().replace("Spoon 3 of Beech", "Spoon 3 of Birch"))  # of the same size
    os.utime(path, ns=(1, 1))
    after, changed = shop.open_catalogue(folder), panels.load_panel("webshop", "test")
    assert [one.product(3).title for one in (before, after)] == ["Spoon 3 of Beech", "Spoon 3 of Birch"]
    names = [{json.loads(task.data)[6] for task in one if json.loads(task.data)[0] == 3} for one in (panel, changed)]
    assert names == [{"Spoon 3 of Beech"}, {"Spoon 3 of Birch"}]
    [opened] = {shop.open_shop(PRESETS["webshop"]).site.catalogue.sha256}
    assert opened == after.sha256 != before.sha256


def test_a_file_without_a_product_says_so_and_leaves_nothing(folder: Path) -> None:
    (folder / "items_shuffle_1000.json").write_text("[{}]")
    with pytest.raises(EnvironmentContractError, match=r"1000.json: holds no product that can be used \(bad record\)"):
        shop.open_catalogue(folder)
    assert not [*(cache_dir() / "webshop").iterdir()]


def forget() -> None:
    for cached in (shop._official, shop._open_shop, panels._official):
        cached.cache_clear()


def test_the_official_splits_go_by_index(folder: Path) -> None:
    loaded = {split: panels.load_panel("webshop", split) for split in ("test", "validation", "train")}
    assert [len(panel) for panel in loaded.values()] == [500, 1000, 10]
    assert loaded["test"].tasks[0].id == "items_shuffle_1000-human-00000"
    assert loaded["train"].tasks[0].id == "items_shuffle_1000-human-01500"
    assert {panel.name for panel in loaded.values()} == {"items_shuffle_1000-human"}
    forget()
    assert panels.load_panel("webshop", "test").sha256 == loaded["test"].sha256
    assert panels.load_panel("embedded", "test").name == "embedded"
    assert folder.exists()


def test_the_official_shop_is_played_and_says_so(folder: Path) -> None:
    pytest.importorskip("tantivy")
    from agentbench_credit.envs.webshop.env import WebShopEnv

    env = WebShopEnv("webshop", "test", panel=None)
    observation, info = env.reset(options={"task": "items_shuffle_1000-human-00003"})
    assert "i want a spoon, and price lower than" in observation
    assert (info["catalogue"], info["noun_tagger"]) == ("items_shuffle_1000", "rules-1")
    reference = env.reference()
    assert reference is not None
    for action in reference.split("\n"):
        _, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert "click[tan]" in reference
    assert folder.exists()


def test_too_few_goals_for_a_split_are_a_typed_error(folder: Path) -> None:
    assert len(panels.load_panel("webshop-synthetic", "test")) == 24  # two colours of twelve spoons
    with pytest.raises(EnvironmentContractError, match="24 goals, so that the split train is empty"):
        panels.load_panel("webshop-synthetic", "train")
    assert folder.exists()


def test_a_changed_file_is_read_again_and_its_faults_are_announced(folder: Path) -> None:
    before = shop.open_catalogue(folder)
    path = folder / "items_shuffle_1000.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), {}, record(99, pricing="cheap")]))
    os.utime(path, ns=(1, 1))
    forget()
    with pytest.warns(UserWarning, match=r"items_shuffle_1000.json: bad record \(1\), price that cannot be read \(1\)"):
        after = shop.open_catalogue(folder)
    assert (before.size, after.size) == (12, 13)
    assert before.sha256 != after.sha256


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "meta.json").unlink(),
        lambda folder: (folder / "meta.json").write_text("{"),
        lambda folder: (folder / "ends.npy").write_bytes(b"torn"),
        lambda folder: (folder / "products.txt").write_bytes((folder / "products.txt").read_bytes()[:-9]),
        lambda folder: (folder / "products.txt").write_bytes((folder / "products.txt").read_bytes().upper()),
    ],
)
def test_a_damaged_packed_catalogue_is_announced_and_made_again(damage: Callable[[Path], Any], folder: Path) -> None:
    catalogue = shop.open_catalogue(folder)
    before = (catalogue.sha256, [*catalogue])
    forget()
    [packed] = (cache_dir() / "webshop").glob("catalogue-*")
    damage(packed)
    with pytest.warns(UserWarning, match="packed catalogue.*it is read again"):
        after = shop.open_catalogue(folder)
    assert (after.sha256, [*after]) == before
    assert [path.name for path in (cache_dir() / "webshop").iterdir()] == [packed.name]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "[1]",
        lambda _: "[" * 100_000,
        lambda _: '["", []]',
        lambda _: '["", 1]',
        lambda text: text.replace("i want", "i need", 1),
    ],
)
def test_damaged_cached_goals_are_announced_and_made_again(damage: Callable[[str], str], folder: Path) -> None:
    before = panels.load_panel("webshop", "test")
    [path] = (cache_dir() / "webshop").glob("goals-*")
    path.write_text(damage(path.read_text()))
    forget()
    with pytest.warns(UserWarning, match="cached goals .* are damaged"):
        assert panels.load_panel("webshop", "test") == before
    assert folder.exists()


@pytest.mark.parametrize("name", ["items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json"])
def test_missing_and_torn_official_files_are_typed_errors(name: str, folder: Path) -> None:
    for torn in ("{", "[" * 100_000):
        (folder / name).write_text(torn)
        with pytest.raises(EnvironmentContractError, match=f"{name}: cannot be read"):
            panels.load_panel("webshop", "test")
    (folder / name).unlink()
    with pytest.raises(EnvironmentContractError, match=r"no items_\w+\*?.json"):
        panels.load_panel("webshop", "test")


def test_without_the_variable_the_made_up_shop_takes_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    for preset in PRESETS:
        assert panels.load_panel(preset, "test").name == "embedded"


def test_the_full_files_come_before_the_small_ones(folder: Path) -> None:
    for name in ("items_shuffle", "items_ins_v2"):
        (folder / f"{name}.json").write_bytes((folder / f"{name}_1000.json").read_bytes())
    assert official.find_files(folder)[0].name == "items_shuffle.json"
