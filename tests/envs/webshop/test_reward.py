"""The official reward, rule by rule and edge by edge, against numbers worked out by hand."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from agentbench_credit.envs.webshop.goals import Goal
from agentbench_credit.envs.webshop.nouns import RULES, Tagger, nouns_by_rules, official_tagger
from agentbench_credit.envs.webshop.product import Product

reward = pytest.importorskip("agentbench_credit.envs.webshop.reward", exc_type=ImportError)

WORDS = Tagger("every word", lambda text: tuple(text.lower().split()))
"""Calls every word a noun, so that title scores are easy to see."""
PRODUCT = Product(
    id="WS1",
    title="Road Shoes",
    description="Made With Memory Foam",
    bullets=("Machine Washable upper", "rubber"),
    attributes=("arch support", "non-slip sole"),
    query="running shoes",
    category="fashion",
    product_category="Clothing \u203a Shoes \u203a Running",
    options=(("color", ("navy",)), ("size", ("8", "9"))),
    prices=(40.0,),
    price=40.0,
    rating="N.A.",
    reviews=(),
)
GOAL = Goal(
    0, "", ("arch support",), ("navy", "8"), 40.0, "running shoes", "Road Shoes", "Clothing \u203a Shoes \u203a Running"
)
CHOSEN = {"color": "navy", "size": "8"}


def score(product: dict[str, Any] | None = None, goal: dict[str, Any] | None = None, **options: str) -> Any:
    bought = PRODUCT._replace(**product or {})
    return reward.score(bought, options or CHOSEN, GOAL._replace(**goal or {}), WORDS)


def test_all_as_asked_is_exactly_one() -> None:
    assert score() == (1.0, 1.0, 1, 2, 1, True, True, 1.0)


@pytest.mark.parametrize(
    ("product", "goal", "options", "expected"),
    [
        # Each part that is missing costs its share of attributes + options + 1 = 4.
        ({"price": 40.01}, {}, {}, 3 / 4),
        ({}, {}, {"color": "navy"}, 3 / 4),
        ({}, {}, {"color": "teal", "size": "12"}, 2 / 4),
        ({}, {"attributes": ("wool lining",)}, {}, 3 / 4),
        ({"price": 40.01}, {"attributes": ("wool lining",)}, {"color": "teal"}, 0.0),
        # Without options, and without a ceiling, which any price keeps.
        ({}, {"options": ()}, {}, 1.0),
        ({"price": 9e9}, {"options": (), "ceiling": None}, {}, 1.0),
        ({"price": 9e9}, {"options": ()}, {}, 1 / 2),
        # Two attributes, one of them there.
        ({}, {"attributes": ("arch support", "wool lining")}, {}, 4 / 5),
        # The kind of product scales the whole.
        ({"query": "hats", "product_category": "Hats", "title": "Road Cap"}, {"name": "Road Shoes"}, {}, 1.0),
        ({"query": "hats", "product_category": "Hats", "title": "Cap"}, {"name": "Road Shoes"}, {}, 0.0),
    ],
)
def test_shares_and_kinds(
    product: dict[str, Any], goal: dict[str, Any], options: dict[str, str], expected: float
) -> None:
    assert score(product, goal, **options).reward == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("query", "levels", "name", "title", "r_type", "title_score"),
    [
        # The same query makes 1, whatever the title, down to a title score of 0.1.
        ("running shoes", "Hats", "a b c d e f g h i j", "a", 1.0, 0.1),
        ("running shoes", "Hats", "a b c d e f g h i j k", "a", 0.1, 1 / 11),
        ("running shoes", "Clothing \u203a Shoes", "a b", "c", 0.0, 0.0),
        # Two different levels of the category do as well, in any order; one level twice does not.
        ("hats", "Running \u203a Clothing", "a b c d e", "a", 1.0, 0.2),
        ("hats", " Shoes \u203aClothing ", "a b c d e", "a", 1.0, 0.2),
        ("hats", "Clothing \u203a Clothing", "a b c d e", "a", 0.5, 0.2),
        ("hats", "Clothing \u203a Hats", "a b c d e", "a", 0.5, 0.2),
        # Otherwise the title score decides, and it must exceed 0.2.
        ("hats", "Hats", "a b c d", "a", 1.0, 0.25),
        ("hats", "Hats", "a b c d e", "a", 0.5, 0.2),
        # A goal without nouns scores 0.2, which is not enough; a noun that is there twice counts once.
        ("hats", "Hats", "", "a", 0.5, 0.2),
        ("running shoes", "Hats", "", "a", 1.0, 0.2),
        ("hats", "Hats", "a a b", "a a a", 1.0, 1 / 3),
        # Capitals do not count.
        ("hats", "Hats", "Road Shoes", "rOAD", 1.0, 0.5),
    ],
)
def test_the_type_of_product(query: str, levels: str, name: str, title: str, r_type: float, title_score: float) -> None:
    got = score({"query": query, "product_category": levels, "title": title}, {"name": name})
    assert (got.r_type, got.title_score) == (r_type, pytest.approx(title_score))


@pytest.mark.parametrize(
    ("attribute", "there"),
    [
        ("arch support", True),
        ("support arch", True),
        ("Arch  SUPPORT!", True),
        ("non slip sole", True),  # punctuation does not count
        ("support", True),  # all of its words are in the product's attribute
        ("arch supporting", True),  # ratio 88.9
        ("memory foam", True),  # in the description
        ("machine washable", True),  # in a bullet
        ("upper rubber", True),  # across two bullets, which are joined by a space
        ("road", True),  # in the title
        ("Road", False),  # the goal's attribute is not lower-cased where texts are searched, as in the official code
        ("", True),  # the empty text is part of any
        ("wool lining", False),
    ],
)
def test_attributes(attribute: str, there: bool) -> None:
    assert score(goal={"attributes": (attribute,)}).n_attributes == there


@pytest.mark.parametrize(
    ("one", "other", "match"),
    [
        ("a" * 4, "a" * 3, True),  # 85.71, rounded 86
        ("a" * 27, "a" * 20, False),  # 85.11, rounded 85: above 85 and yet no match
        ("a" * 10, "a" * 7, False),  # 82.35
        ("machine wash", "machine washable", True),
        ("", "", False),
        ("!", "!", False),
        ("é", "é", False),  # nothing is left without what is not ASCII
        ("café", "caf", True),
    ],
)
def test_similar_texts(one: str, other: str, match: bool) -> None:
    assert reward.similar(one, other) is reward.similar(other, one) is match


@pytest.mark.parametrize(
    ("wanted", "chosen", "matches"),
    [
        (("navy",), {"color": "navy"}, 1),
        (("navy",), {}, 0),
        (("navy",), {"any name": "navy blue"}, 0),  # becomes blue, the first known colour of the two
        (("navy blue",), {"color": "blue"}, 1),
        (("light blue",), {"color": "blue"}, 1),  # blue comes before light
        (("dark red",), {"color": "dark green"}, 1),  # both become dark
        (("tiered skirt",), {"style": "red"}, 1),  # colours are found inside of words
        (("8",), {"size": "8"}, 1),
        (("8",), {"size": "8 wide"}, 1),  # all of its words are there
        (("8",), {"size": "9"}, 0),
        (("x-large",), {"size": "large"}, 1),
        (("navy", "8"), {"color": "navy", "size": "8"}, 2),
        (("navy", "navy"), {"color": "navy"}, 2),  # each wanted option looks for itself
        (("navy",), {"color": "navy", "trim": "navy"}, 1),  # at most as many as are wanted
    ],
)
def test_options(wanted: tuple[str, ...], chosen: dict[str, str], matches: int) -> None:
    bought = PRODUCT._replace(title="Road Shoes navy blue", bullets=("8",))  # texts do not count for options
    got = reward.score(bought, chosen, GOAL._replace(options=wanted), WORDS)
    assert got.n_options == matches


@pytest.mark.parametrize(("price", "kept"), [(39.99, 1), (40.0, 1), (40.01, 0), (0.0, 1)])
def test_the_ceiling_itself_is_within(price: float, kept: int) -> None:
    assert score({"price": price}).r_price == kept


def test_nouns_by_rules_leave_out_other_words() -> None:
    text = "The Extremely Comfortable, Waterproof Trail-Runner for Women's Feet 24 and a 3x lens"
    assert nouns_by_rules(text) == ("trail", "runner", "women", "feet", "lens")
    assert nouns_by_rules("") == ()


class TestTagger:
    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        official_tagger.cache_clear()
        yield
        official_tagger.cache_clear()

    def test_without_a_model_the_rules_are_announced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> Any:
            raise ImportError(name)

        monkeypatch.setattr("importlib.import_module", missing)
        with pytest.warns(UserWarning, match=r"no spaCy model .*rules-1.*can differ"):
            assert official_tagger() is RULES
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert official_tagger() is RULES

    @pytest.mark.parametrize("best", ["en_core_web_lg", "en_core_web_md"])
    def test_the_best_model_that_is_there_is_used_and_named(self, monkeypatch: pytest.MonkeyPatch, best: str) -> None:
        class Token:
            def __init__(self, text: str) -> None:
                self.text, self.pos_ = text, {"Road": "PROPN", "Shoes": "NOUN"}.get(text, "ADJ")

        class Spacy:
            @staticmethod
            def load(model: str, **_: object) -> Any:
                if model not in (best, "en_core_web_sm"):
                    raise OSError(model)
                return lambda text: [Token(word) for word in text.split()]

        monkeypatch.setattr("importlib.import_module", lambda _: Spacy)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tagger = official_tagger()
        assert (tagger.name, tagger.nouns("Nice Road Shoes")) == (f"spacy:{best}", ("road", "shoes"))
        announced = [f"by {best}, not by en_core_web_lg" in str(warning.message) for warning in caught]
        assert announced == ([] if best == "en_core_web_lg" else [True])
