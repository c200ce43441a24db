"""Search: what is found and in which order, hostile queries, and the index in the cache."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbench_credit.envs.webshop.catalogue import Catalogue, catalogue_of
from agentbench_credit.envs.webshop.generate import make_product

pytest.importorskip("tantivy")
search = pytest.importorskip("agentbench_credit.envs.webshop.search", exc_type=ImportError)

BLANK = make_product(0)._replace(title="", description="", bullets=(), options=())


def shop(*titles: str, **fields: Any) -> Catalogue:
    products = (BLANK._replace(title=title, **fields) for title in titles)
    return catalogue_of("mine", products)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Any:
    catalogue = catalogue_of("many", map(make_product, range(400)))
    return search.open_search(catalogue, tmp_path_factory.mktemp("cache"))


def test_rare_words_count_more_and_short_texts_come_first(tmp_path: Path) -> None:
    find = search.open_search(
        shop("red shoe", "red hat", "red sock", "red shoe with many other words in its name"), tmp_path
    )
    assert find("red shoe")[:2] == (0, 3)
    assert set(find("red shoe")) == {0, 1, 2, 3}
    assert find("hat shoe")[0] == 1
    assert find("boat") == ()


def test_words_are_found_by_their_stems_whatever_their_case_and_stop_words_find_nothing(tmp_path: Path) -> None:
    find = search.open_search(shop("Running SHOES for the run", "the hat"), tmp_path)
    assert find("shoe") == find("ShOeS!") == find("run") == (0,)
    assert find("the") == find("for the") == find("AND or NOT") == ()


def test_title_description_first_bullet_and_options_are_searched_and_nothing_else(tmp_path: Path) -> None:
    product = BLANK._replace(
        title="apple", description="banana", bullets=("cherry", "damson"), attributes=("elder",), query="fig",
        options=(("grape", ("hazel", "kiwi")),), category="lemon", product_category="mango", rating="nut",
    )  # fmt: skip
    find = search.open_search(catalogue_of("mine", [product]), tmp_path)
    assert all(map(find, ["apple", "banana", "cherry", "grape", "hazel", "kiwi"]))
    assert not any(map(find, ["damson", "elder", "fig", "lemon", "mango", "nut"]))


def test_equal_scores_are_in_the_order_of_the_catalogue_and_fifty_are_found(tmp_path: Path) -> None:
    find = search.open_search(shop(*["red shoe"] * 70), tmp_path)
    assert find("shoe") == tuple(range(50))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        *(
            (query, (0,))
            for query in ('"red', "red\" OR 'shoe", "+red -shoe", "NOT red", "text:red", "((((red", "red]")
        ),
        *((query, (0,)) for query in ("IN [red shoe]", "red^9 ~2 \\", "-red", "red " * 300)),
        *(
            (query, ())
            for query in ("", " ", '"', "number:[0 TO 9]", "re*", "/re./", "*", "\x00", "\ud800", "%s {}", "9" * 400)
        ),
    ],
)
def test_nothing_in_a_query_is_syntax(query: str, found: tuple[int, ...], tmp_path: Path) -> None:
    find = search.open_search(shop("red shoe", "blue hat"), tmp_path)
    assert find(query) == found


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_any_text_can_be_searched(many: Any, query: str) -> None:
    found = many(query)
    assert len(found) == len(set(found)) <= 50
    assert all(0 <= number < 400 for number in found)


def test_a_thousand_hostile_queries(many: Any) -> None:
    rng = random.Random(0)
    for _ in range(1000):
        found = many("".join(rng.choices(string.printable + "\x00\ud800\u2028", k=rng.randrange(80))))
        assert len(found) == len(set(found)) <= 50


def test_an_index_is_built_once_and_again_for_another_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = shop("red shoe"), shop("red shoe", "blue hat")
    search.open_search(one, tmp_path)
    assert search.open_search(other, tmp_path)("hat") == (1,)
    assert len([*tmp_path.iterdir()]) == 2
    monkeypatch.setattr(search, "build_index", None)
    assert search.open_search(one, tmp_path)("hat") == ()
    assert search.open_search(other, tmp_path)("hat") == (1,)
    monkeypatch.setattr(search, "version", lambda _: "0.0")  # another tantivy may find other words in the same texts
    with pytest.raises(TypeError):
        search.open_search(one, tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "meta.json").unlink(),
        lambda path: (path / "meta.json").write_text("{"),
        lambda path: [part.unlink() for part in path.iterdir() if part.name != "meta.json"],
        lambda path: [part.write_bytes(b"") for part in path.iterdir() if part.suffix != ".json"],
    ],
)
def test_a_damaged_index_is_announced_and_built_again(damage: Callable[[Path], Any], tmp_path: Path) -> None:
    search.open_search(shop("red shoe"), tmp_path)
    [path] = tmp_path.iterdir()
    damage(path)
    with pytest.warns(UserWarning, match="index .* is damaged and is built again"):
        assert search.open_search(shop("red shoe"), tmp_path)("shoe") == (0,)
    assert [*tmp_path.iterdir()] == [path]
    assert search.open_search(shop("red shoe"), tmp_path)("shoe") == (0,)
