"""The made-up shop: products drawn from word lists of our own, each from a seed of its own."""

from __future__ import annotations

import json
import random
from functools import cache
from importlib import resources
from statistics import fmean
from typing import TypedDict, cast

from agentbench_credit.envs.webshop.product import LEVEL_SEPARATOR, MISSING_PRICE, Product, Review

PRODUCTS = 1600
"""Products of the embedded shop."""

_BRANDS = (
    ("Vel", "Nor", "Kas", "Tum", "Bri", "Olo", "Fen", "Mar", "Zet", "Hal", "Pim", "Dra", "Sol", "Wex", "Ilu", "Gar"),
    ("ora", "wick", "etta", "ivo", "dane", "umi", "aro", "lyn", "esto", "quist", "ande", "ibel"),
)
_LINES = (
    "Aster Breeze Comet Drift Ember Fjord Glade Harbor Isle Juniper Kite Lumen Meadow Nimbus Orchard Prairie Quarry "
    "Reef Summit Tundra Umber Vale Willow Zephyr"
)
_TITLES = (
    "{brand} {line} {kind}, {first}, {second}, {use}",
    "{brand} {kind} {line} with {first} {use}",
    "{line} {kind} by {brand}, {first} and {second}",
    "{brand} {first} {kind} {use}, {line} series",
    "{kind} {use}, {brand} {line}, {first}",
)
_BULLETS = (
    "{attribute}: made so that the {part} lasts",
    "you get {attribute}, which buyers ask for most",
    "tested for {attribute} before it leaves our workshop",
    "{attribute} with a carefully finished {part}",
    "the {part} is built around {attribute}",
)
_USES = ("a good choice {use}", "our team recommends it {use}", "chosen by many {use}")
_DESCRIPTIONS = (
    "The {brand} {line} is a {kind} that we designed {use}. The {part} was redrawn three times.",
    "Looking for a {kind} {use}? The {line} by {brand} puts the {part} first.",
    "{brand} has made the {line} since its first season. Its {part} is what people notice, {use} most of all.",
)
_REVIEWS = (
    (5, "Exactly as described", "The {part} is better than I hoped, and it came on time."),
    (5, "Would buy again", "Bought it {use} and have no complaint about the {part}."),
    (4, "Good, not perfect", "The {part} could be a little sturdier, all else is fine."),
    (3, "It is alright", "Works {use}, but the {part} looks different from the picture."),
    (2, "Disappointed", "The {part} gave up after a month."),
)


class Shelf(TypedDict):
    """What products of one category are made of."""

    query: str
    department: str
    levels: list[str]
    kinds: list[str]
    attributes: list[str]
    options: dict[str, list[str]]
    price: list[float]
    uses: list[str]
    parts: list[str]


@cache
def shelves() -> tuple[Shelf, ...]:
    """Return the word lists of all categories, which ship with the package."""
    text = resources.files(__package__).joinpath("shelves.json").read_text(encoding="utf-8")
    return tuple(cast(list[Shelf], json.loads(text)))


def shelf_of(number: int) -> Shelf:
    """Return the category of a made-up product."""
    return shelves()[number % len(shelves())]


def make_product(number: int) -> Product:
    """Make up a product.

    Args:
        number: Which one; the same number gives the same product everywhere.

    Returns:
        The product.
    """
    shelf, rng = shelf_of(number), random.Random(f"webshop/product/{number}")
    attributes = rng.sample(shelf["attributes"], rng.randint(3, 5))
    words = {
        "brand": "".join(map(rng.choice, _BRANDS)),
        "line": f"{rng.choice(_LINES.split())} {rng.randint(2, 99)}",
        "kind": rng.choice(shelf["kinds"]),
        "use": rng.choice(shelf["uses"]),
        "part": rng.choice(shelf["parts"]),
    }
    named = words | {"first": attributes[0].title(), "second": attributes[1].title(), "kind": words["kind"].title()}
    reviews = _reviews(words, rng)
    prices = _prices((shelf["price"][0], shelf["price"][1]), rng)
    price = round(rng.uniform(prices[0], prices[-1]), 2) if prices else MISSING_PRICE
    return Product(
        id=_id(number),
        title=rng.choice(_TITLES).format_map(named),
        description=rng.choice(_DESCRIPTIONS).format_map(words),
        bullets=_bullets(attributes, shelf, words, rng),
        attributes=tuple(attributes),
        query=shelf["query"],
        category=shelf["department"],
        product_category=f" {LEVEL_SEPARATOR} ".join(shelf["levels"]),
        options=tuple((name, _some(values, rng)) for name, values in shelf["options"].items()),
        prices=prices,
        price=price,
        rating=f"{fmean(float(review.stars) for review in reviews):.1f}" if reviews else "N.A.",
        reviews=reviews,
    )


def _id(number: int) -> str:
    """Return an id in the form of the official ones; different numbers below 36⁸ give different ids."""
    digits, rest = "", (number * 1_299_709 + 7_919) % 36**8
    for _ in range(8):
        rest, digit = divmod(rest, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return f"WS{digits}"


def _some(values: list[str], rng: random.Random) -> tuple[str, ...]:
    """Return at least two of the values, in their order."""
    kept = set(rng.sample(values, rng.randint(2, len(values))))
    return tuple(value for value in values if value in kept)


def _prices(ends: tuple[float, float], rng: random.Random) -> tuple[float, ...]:
    """Draw no price (one in 25), a range (one in 5), or one price; small ones are more common than large ones."""
    (low, high), kind, share = ends, rng.random(), rng.random()
    price = int(low + (high - low) * share * share) + rng.choice((0.0, 0.49, 0.95, 0.99))
    if kind < 0.04:
        return ()
    return (price, round(price * rng.uniform(1.1, 1.5), 2)) if kind < 0.24 else (price,)


def _bullets(attributes: list[str], shelf: Shelf, words: dict[str, str], rng: random.Random) -> tuple[str, ...]:
    lines = [
        rng.choice(_BULLETS).format(attribute=attribute, part=rng.choice(shelf["parts"])) for attribute in attributes
    ]
    lines.append(rng.choice(_USES).format_map(words))
    rng.shuffle(lines)
    return tuple(lines)


def _reviews(words: dict[str, str], rng: random.Random) -> tuple[Review, ...]:
    chosen = rng.sample(_REVIEWS, rng.randint(0, 3))
    return tuple(Review(title, str(stars), body.format_map(words)) for stars, title, body in chosen)
