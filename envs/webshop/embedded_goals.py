"""Goals of the made-up shop: instructions in varying words, split by product."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable

from agentbench_credit.envs.webshop.generate import shelf_of
from agentbench_credit.envs.webshop.goals import Goal, draw_ceiling
from agentbench_credit.envs.webshop.product import Product

_OPENINGS = (
    "i need {thing}",
    "i am looking for {thing}",
    "find me {thing}",
    "i want to buy {thing}",
    "can you get me {thing}",
    "please order {thing}",
    "my sister asked for {thing}",
)
_PRICES = (
    ", and price lower than {ceiling:.2f} dollars",
    ", for less than {ceiling:.0f} dollars",
    " that costs under ${ceiling:.0f}",
    ", my budget is {ceiling:.2f} dollars",
    ", nothing above ${ceiling:.2f}",
)
_SPLITS = ("test", "validation", "train", "train", "train", "train")


def embedded_goals(products: Iterable[Product]) -> dict[str, list[Goal]]:
    """Make one or two goals of each product; no instruction is there twice.

    Args:
        products: The made-up products in their order.

    Returns:
        Goals by split; all goals of a product are in one split, which a hash of its id names.
    """
    goals: dict[str, list[Goal]] = {"train": [], "validation": [], "test": []}
    told: set[str] = set()
    for number, product in enumerate(products):
        split = _SPLITS[hashlib.sha256(f"webshop/split/{product.id}".encode()).digest()[0] % len(_SPLITS)]
        for place in range(1 + number // 7 % 2):
            goal = _make_goal(number, product, random.Random(f"webshop/goal/{number}/{place}"))
            if goal.instruction not in told:
                told.add(goal.instruction)
                goals[split].append(goal)
    return goals


def _make_goal(number: int, product: Product, rng: random.Random) -> Goal:
    attributes = rng.sample(product.attributes, rng.choice((1, 2, 2, 3)))
    axes = [axis for axis in product.options if rng.random() < 0.85]
    chosen = [(name, rng.choice(values)) for name, values in axes]
    ceiling = draw_ceiling(product.price, rng)
    kind = max((kind for kind in shelf_of(number)["kinds"] if kind in product.title.lower()), key=len)
    opening = rng.choice(_OPENINGS).format(thing=_thing(kind, attributes, chosen, rng))
    price = "" if ceiling is None else rng.choice(_PRICES).format(ceiling=ceiling)
    return Goal(
        product=number,
        instruction=opening + price,
        attributes=tuple(attributes),
        options=tuple(value for _, value in chosen),
        ceiling=ceiling,
        query=product.query,
        name=product.title,
        product_category=product.product_category,
    )


def _thing(kind: str, attributes: list[str], chosen: list[tuple[str, str]], rng: random.Random) -> str:
    """Return what is wanted in words: attributes before or after the kind, then the options."""
    style = rng.randrange(3)
    before, after = (
        (attributes[:1], attributes[1:]) if style == 0 else (attributes, []) if style == 1 else ([], attributes)
    )
    words = f"{', '.join(before)} {kind}".strip()
    article = "some" if kind.endswith("s") and not kind.endswith("ss") else "an" if words[0] in "aeiou" else "a"
    tail = f" with {' and '.join(after)}" if after else ""
    return f"{article} {words}{tail}{_options(chosen, rng)}"


def _options(chosen: list[tuple[str, str]], rng: random.Random) -> str:
    if not chosen:
        return ""
    if rng.random() < 0.3:
        return ", " + ", and ".join(f"{name}: {value}" for name, value in chosen)
    parts = [f"in {value}" if name == "color" else f"{name} {value}" for name, value in chosen]
    return (", " if not parts[0].startswith("in ") else " ") + rng.choice((", ", " and ")).join(parts)
