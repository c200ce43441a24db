"""The official reward: what a purchase is worth for a goal, between 0 and 1."""

from __future__ import annotations

from typing import NamedTuple

from rapidfuzz import fuzz, utils

from agentbench_credit.envs.webshop.goals import Goal
from agentbench_credit.envs.webshop.nouns import Tagger
from agentbench_credit.envs.webshop.product import LEVEL_SEPARATOR, Product
from agentbench_credit.envs.webshop.words import known_words

MATCH = 85
"""Token-set ratio in whole per cent that two texts must exceed to match."""
COLOURS = known_words("colours")
"""The colours that option values are reduced to; the first of this order that stands in a value counts."""


class Score(NamedTuple):
    """A purchase's reward and its parts."""

    reward: float
    """r_type · (n_attributes + n_options + r_price) / (attributes + options + 1)."""
    r_type: float
    """1, 0.5, 0.1 or 0: whether it is the kind of product that was asked for."""
    n_attributes: int
    """Attributes of the goal that the product has."""
    n_options: int
    """Options of the goal that were chosen."""
    r_price: int
    """1 if the price is within the ceiling, or none is stated."""
    query_match: bool
    """Whether both were collected by the same search."""
    category_match: bool
    """Whether at least two different category levels are the same."""
    title_score: float
    """Share of the nouns in the goal's name that the product's name has; 0.2 if the goal's name has none."""


def score(product: Product, options: dict[str, str], goal: Goal, tagger: Tagger) -> Score:
    """Score a purchase.

    Args:
        product: What is bought.
        options: The chosen value of each option.
        goal: What was asked for.
        tagger: Finds the nouns of names.

    Returns:
        The reward with its parts; 1 if all is as asked for. Source: WebShop (2207.01206) and its code.
    """
    query_match = product.query == goal.query
    category_match = len(_levels(product.product_category) & _levels(goal.product_category)) >= 2
    title_score = _title_score(product.title, goal.name, tagger)
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score < 0.1:
        r_type = 0.1 if title_score > 0 else 0.0
    n_attributes = sum(_has_attribute(product, attribute) for attribute in goal.attributes)
    n_options = _matching_options(goal.options, tuple(options.values()))
    r_price = int(goal.ceiling is None or product.price <= goal.ceiling)
    share = (n_attributes + n_options + r_price) / (len(goal.attributes) + len(goal.options) + 1)
    return Score(r_type * share, r_type, n_attributes, n_options, r_price, query_match, category_match, title_score)


def similar(one: str, other: str) -> bool:
    """Tell whether two texts match: token-set ratio above `MATCH`, rounded to whole per cent as the official code does.

    Case, order and repetition of words do not count, nor do characters that are not ASCII or not alphanumeric.

    Args:
        one: A text.
        other: Another text.

    Returns:
        Whether they match; an empty text matches nothing.
    """
    left, right = (text.encode("ascii", "ignore").decode() for text in (one, other))
    return round(fuzz.token_set_ratio(left, right, processor=utils.default_process)) > MATCH


def colour_of(value: str) -> str:
    """Return the first of `COLOURS` that stands anywhere in an option's value, the value itself if none does."""
    return next((colour for colour in COLOURS if colour in value), value)


def _levels(product_category: str) -> set[str]:
    return {level.strip() for level in product_category.split(LEVEL_SEPARATOR)}


def _title_score(bought: str, wanted: str, tagger: Tagger) -> float:
    nouns = tagger.nouns(wanted)
    # A noun that the goal's name has twice counts twice below and once above, as in the official code.
    return len(set(nouns) & set(tagger.nouns(bought))) / len(nouns) if nouns else 0.2


def _has_attribute(product: Product, attribute: str) -> bool:
    if any(similar(own, attribute) for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(attribute in text.lower() for text in texts)


def _matching_options(wanted: tuple[str, ...], chosen: tuple[str, ...]) -> int:
    colours = [colour_of(value) for value in chosen]
    return sum(any(similar(value, colour_of(goal)) for value in colours) for goal in wanted)
