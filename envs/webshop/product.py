"""A product of the shop, and the one-line form in which catalogues are stored and hashed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MISSING_PRICE = 100.0
"""Dollars that a product without a price costs."""

LEVEL_SEPARATOR = "\u203a"
"""Between the levels of a product's category: a single angle quotation mark."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


class Review(NamedTuple):
    """What a buyer wrote."""

    title: str
    """Headline."""
    stars: str
    """Stars given, as text."""
    body: str
    """The text."""


class Product(NamedTuple):
    """A product; all texts are on one line and without control characters."""

    id: str
    """What its link on a page of results says."""
    title: str
    """Its name."""
    description: str
    """The text of the page *Description*."""
    bullets: tuple[str, ...]
    """The lines of the page *Features*."""
    attributes: tuple[str, ...]
    """What the reward compares with a goal's attributes; on no page."""
    query: str
    """The search by which it was collected, its kind for the reward; lower case."""
    category: str
    """The shop's department."""
    product_category: str
    """Levels of its category joined by `LEVEL_SEPARATOR`."""
    options: tuple[tuple[str, tuple[str, ...]], ...]
    """Name and values of each option, lower case."""
    prices: tuple[float, ...]
    """Dollars: none, one, or the two ends of a range."""
    price: float
    """Dollars that it costs: the one price, a draw frozen from a seed for a range, `MISSING_PRICE` for none."""
    rating: str
    """Stars as text, ``"N.A."`` for none."""
    reviews: tuple[Review, ...]
    """The page *Reviews*."""

    @property
    def price_tag(self) -> str:
        """What pages say about the price."""
        if not self.prices:
            return f"${MISSING_PRICE}"
        return " to ".join(f"${price}" for price in self.prices)


def clean(text: str) -> str:
    """Return a text on one line, without control characters and lone surrogates."""
    return text.strip() if text.isprintable() else _UNPRINTABLE.sub(" ", text).strip()


def to_line(product: Product) -> bytes:
    """Return a product as one line, which ends with a newline.

    Fields are separated, and members of lists ended, by control characters, which no text holds: a shop of a million
    products is read several times faster than from JSON.
    """
    fields = (
        *product[:3],
        _list(product.bullets),
        _list(product.attributes),
        *product[5:8],
        _list("\x1d".join((name, *values)) for name, values in product.options),
        _list(map(repr, product.prices)),
        repr(product.price),
        product.rating,
        _list(map("\x1d".join, product.reviews)),
    )
    return ("\x1f".join(fields) + "\n").encode()


def from_line(line: bytes) -> Product:
    """Return the product of a line that `to_line` made.

    Raises:
        ValueError: It is no such line.
    """
    row = line[:-1].decode().split("\x1f")
    (
        number,
        title,
        description,
        bullets,
        attributes,
        query,
        category,
        levels,
        options,
        prices,
        price,
        rating,
        reviews,
    ) = row
    pairs = (part.split("\x1d") for part in _members(options))
    return Product(
        number,
        title,
        description,
        _members(bullets),
        _members(attributes),
        query,
        category,
        levels,
        tuple((name, tuple(values)) for name, *values in pairs),
        tuple(map(float, _members(prices))),
        float(price),
        rating,
        tuple(Review(*review.split("\x1d")) for review in _members(reviews)),
    )


def _list(texts: Iterable[str]) -> str:
    return "".join(f"{text}\x1e" for text in texts)


def _members(text: str) -> tuple[str, ...]:
    return tuple(text.split("\x1e")[:-1])
