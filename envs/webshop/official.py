"""The official data of WebShop, read from the folder that ``$WEBSHOP_DATA`` names."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from agentbench_credit.envs.webshop.product import MISSING_PRICE, Product, clean
from agentbench_credit.errors import EnvironmentContractError

VARIABLE = "WEBSHOP_DATA"
"""Environment variable with the folder of the official files."""
CHUNK = 2**20
"""Characters read at a time."""
LONGEST_RECORD = 2**26
"""Characters; a longer record is no product."""
LONGEST_ID = 10
"""Characters; products with a longer id are left out, as the official code does."""

_SOURCE = "the official files are linked in the README of princeton-nlp/WebShop"
_SPACE = re.compile(r"[ \t\r\n]*")
_BAD = (KeyError, TypeError, ValueError, AttributeError)


def data_folder() -> Path | None:
    """Return the folder of the official files, None if ``$WEBSHOP_DATA`` is not set."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else None


def find_files(folder: Path) -> tuple[Path, Path, Path]:
    """Find the official files; the full ones come before the small ones.

    Args:
        folder: Where they are.

    Returns:
        Products, their attributes (of the same size), people's instructions.

    Raises:
        EnvironmentContractError: One is missing.
    """
    names = sorted((path.name for path in folder.glob("items_shuffle*.json")), key=lambda name: (len(name), name))
    if not names:
        raise EnvironmentContractError("no items_shuffle*.json", where=f"${VARIABLE}={folder}", mend=_SOURCE)
    size = names[0].removeprefix("items_shuffle")
    files = (folder / names[0], folder / f"items_ins_v2{size}", folder / "items_human_ins.json")
    for path in files:
        if not path.is_file():
            raise EnvironmentContractError(f"no {path.name}", where=f"${VARIABLE}={folder}", mend=_SOURCE)
    return files


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a file that maps ids of products to something.

    Args:
        path: The file.

    Returns:
        The mapping.

    Raises:
        EnvironmentContractError: It cannot be read, is no JSON, or no mapping.
    """
    try:
        mapping = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise EnvironmentContractError(f"cannot be read ({error})", where=str(path), mend=_SOURCE) from error
    if not isinstance(mapping, dict):
        raise EnvironmentContractError("is no JSON object", where=str(path), mend=_SOURCE)
    return mapping


def read_records(path: Path) -> Iterator[Any]:
    """Read the elements of a JSON list one at a time, so that a file of many GB needs little memory.

    Args:
        path: The file.

    Yields:
        The elements.

    Raises:
        EnvironmentContractError: The file cannot be read, is torn, or no JSON list.
    """
    count = 0
    try:
        for record in _elements(path):
            count += 1
            yield record
    except (OSError, ValueError, RecursionError) as error:
        what = f"cannot be read after {count} records ({error})"
        raise EnvironmentContractError(what, where=str(path), mend=_SOURCE) from error


def _elements(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig") as stream:
        window = _Window(stream)
        if window.take() != "[":
            raise ValueError("no JSON list")
        if window.look() == "]":
            return
        while True:
            yield window.value()
            if (char := window.take()) == "]":
                return
            if char != ",":
                raise ValueError("the list is torn")


class _Window:
    """A piece of a file's text that is read on as needed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._place = stream, "", 0
        self._decoder = json.JSONDecoder()

    def look(self) -> str:
        """Return the next character that is no space, without taking it; empty text at the end."""
        while True:
            space = _SPACE.match(self._text, self._place)
            self._place = space.end() if space else self._place
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._more():
                return ""

    def take(self) -> str:
        char = self.look()
        self._place += len(char)
        return char

    def value(self) -> Any:
        """Take a JSON value; ValueError if there is none."""
        self.look()
        while True:
            try:
                value, self._place = self._decoder.raw_decode(self._text, self._place)
            except json.JSONDecodeError:
                if len(self._text) - self._place > LONGEST_RECORD or not self._more():
                    raise
            else:
                return value

    def _more(self) -> bool:
        chunk = self._stream.read(CHUNK)
        self._text, self._place = self._text[self._place :] + chunk, 0
        return bool(chunk)


def read_products(path: Path, attributes: dict[str, Any], counts: Counter[str]) -> Iterator[Product]:
    """Read the official products.

    Args:
        path: ``items_shuffle*.json``.
        attributes: What ``items_ins_v2*.json`` holds.
        counts: Takes how many records were left out or are incomplete, and why.

    Yields:
        The products in the order of the file.
    """
    seen: set[str] = set()
    for record in read_records(path):
        try:
            if record["asin"] == "nan" or len(record["asin"]) > LONGEST_ID:
                counts["id that the official code leaves out"] += 1
            elif record["asin"].strip().upper() in seen:
                counts["id that was there before"] += 1
            else:
                incomplete: Counter[str] = Counter()
                product = product_of(record, attributes, incomplete)
                counts.update(incomplete)
                seen.add(product.id)
                yield product
        except _BAD:
            counts["bad record"] += 1


def product_of(record: dict[str, Any], attributes: dict[str, Any], counts: Counter[str]) -> Product:
    """Return an official record as a product.

    Args:
        record: An element of ``items_shuffle*.json``.
        attributes: What ``items_ins_v2*.json`` holds.
        counts: Takes what is incomplete.

    Returns:
        The product; a price that cannot be read counts as missing.

    Raises:
        KeyError: A field is missing.
        ValueError: A field has another type than it should.
    """
    number = _text(record["asin"]).upper()
    bullets = record["small_description"]
    own = attributes.get(record["asin"])
    listed = own.get("attributes") if isinstance(own, dict) else None
    if listed is None:
        counts["product without attributes"] += 1
    elif not isinstance(listed, list):
        raise ValueError("the attributes are no list")
    prices = _prices(record.get("pricing"), counts)
    price = prices[0] if prices else MISSING_PRICE
    if len(prices) == 2:
        price = random.Random(f"webshop/price/{number}").uniform(*prices)
    title = _text(record["name"])
    if not number or not title:
        raise ValueError("no id or no name")
    return Product(
        id=number,
        title=title,
        description=_text(record["full_description"] or ""),
        bullets=tuple(map(_text, bullets if isinstance(bullets, list) else [bullets or ""])),
        attributes=("DUMMY_ATTR",) if listed is None else tuple(map(_text, listed)),
        query=_text(record["query"]).lower(),
        category=_text(record["category"]),
        product_category=_text(record["product_category"]),
        options=_options(record.get("customization_options")),
        prices=prices,
        price=price,
        rating="N.A.",
        reviews=(),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return clean(value)


def _prices(value: Any, counts: Counter[str]) -> tuple[float, ...]:
    """Return the one or two prices that are stated, in dollars."""
    if not value:
        return ()
    try:
        prices = [float(re.sub(r"[^\d.]", "", part)) for part in _text(value).split("$")[1:]]
        if not prices or not all(map(math.isfinite, prices)):
            raise ValueError("no price")
    except ValueError:
        counts["price that cannot be read"] += 1
        return ()
    return tuple(prices[:2])


def _options(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in (value or {}).items():
        if contents is not None:
            values = (_text(content["value"]).replace("/", " | ").strip().lower() for content in contents)
            options[_text(name).lower()] = tuple(dict.fromkeys(values))
    return tuple(options.items())
