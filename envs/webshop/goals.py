"""Goals: what a shopper is asked to buy, with the price ceilings frozen."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from agentbench_credit.envs.webshop.product import Product, clean

SHUFFLE_SEED = 233
"""The official seed of the order of goals."""
CEILINGS = tuple(10.0 * step for step in range(1, 100))
"""Price ceilings that can be stated, in dollars."""
MAX_COMBINATIONS = 1000
"""Option combinations of one product that become synthetic goals; more are left out, and counted."""


class Goal(NamedTuple):
    """What to buy; every field but the instruction is what the reward looks at."""

    product: int
    """Number of the product that the goal was made from."""
    instruction: str
    """What the shopper is told."""
    attributes: tuple[str, ...]
    """Attributes that the purchase should have."""
    options: tuple[str, ...]
    """Option values that should be chosen."""
    ceiling: float | None
    """Dollars that the price should not exceed, None if no ceiling is stated."""
    query: str
    """The product's search."""
    name: str
    """The product's name."""
    product_category: str
    """The product's category levels."""


def to_data(goal: Goal) -> str:
    """Return a goal as the JSON text of a task."""
    return json.dumps(goal, ensure_ascii=False, separators=(",", ":"))


def from_data(data: str) -> Goal:
    """Return the goal of a task's text.

    Raises:
        ValueError: The text is no goal.
    """
    row: Any = json.loads(data)
    if not isinstance(row, list) or len(row) != len(Goal._fields):
        raise ValueError("not a list of a goal's fields")
    number, instruction, attributes, options, ceiling, query, name, levels = row
    if not isinstance(attributes, list) or not isinstance(options, list):
        raise ValueError("attributes or options are no list")
    texts = (instruction, query, name, levels, *attributes, *options)
    if not all(isinstance(text, str) for text in texts) or type(number) is not int:
        raise ValueError("a field has another type")
    if ceiling is not None and not (type(ceiling) in (int, float) and math.isfinite(ceiling)):
        raise ValueError("the ceiling is no finite number")
    return Goal(number, clean(instruction), tuple(attributes), tuple(options), ceiling, query, name, levels)


def draw_ceiling(price: float, rng: random.Random) -> float | None:
    """Draw a price ceiling: of the next four multiples of 10 above the price two are drawn, and the larger one counts.

    Args:
        price: Dollars.
        rng: Draws.

    Returns:
        The ceiling, None where fewer than two multiples up to 990 are above the price.
    """
    above = [ceiling for ceiling in CEILINGS if ceiling > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else None


def official_goals(
    products: Iterator[Product], instructions: dict[str, list[dict[str, Any]]], *, human: bool, counts: Counter[str]
) -> list[Goal]:
    """Make the goals of the official data, in the official order.

    The official code draws ceilings anew in every process; here each comes from a seed of its own.

    Args:
        products: The products in their order.
        instructions: What each product's id has: ``instruction``, ``instruction_attributes`` and, for human goals,
            ``instruction_options``.
        human: Whether these are people's instructions; else every combination of option values makes a goal.
        counts: Takes how many were left out, and why.

    Returns:
        The goals after the fixed shuffle.
    """
    goals: list[Goal] = []
    for number, product in enumerate(products):
        for place, row in enumerate(instructions.get(product.id, ())):
            try:
                goals += _goals_of(number, product, place, row, human=human, counts=counts)
            except (KeyError, TypeError, AttributeError):
                counts["bad instruction"] += 1
    random.Random(SHUFFLE_SEED).shuffle(goals)
    return goals


def _goals_of(
    number: int, product: Product, place: int, row: dict[str, Any], *, human: bool, counts: Counter[str]
) -> Iterator[Goal]:
    told, attributes = row["instruction"], _texts(row["instruction_attributes"])
    if not told or not attributes:
        counts["instruction without text or attributes"] += 1
        return
    ceiling = draw_ceiling(product.price, random.Random(f"webshop/ceiling/{product.id}/{human}/{place}"))
    clause = "" if ceiling is None else f", and price lower than {ceiling:.2f} dollars"
    told = clean(told)
    goal = Goal(number, "", attributes, (), ceiling, product.query, product.title, product.product_category)
    if human:
        chosen = row["instruction_options"]
        options = _texts(list(chosen.values()) if isinstance(chosen, dict) else chosen)
        yield goal._replace(instruction=told.strip(".") + clause, options=options)
        return
    axes = sorted(product.options)
    combinations = itertools.product(*(values for _, values in axes))
    for values in itertools.islice(combinations, MAX_COMBINATIONS):
        named = ", and ".join(f"{name}: {value}" for (name, _), value in zip(axes, values, strict=True))
        told_options = f" with {named}" if named else ""
        yield goal._replace(instruction=told + told_options + clause, options=values)
    if next(combinations, None) is not None:
        counts["product with too many option combinations"] += 1


def _texts(values: Any) -> tuple[str, ...]:
    """Return a list's texts, cleaned; TypeError if it is anything but a list of texts."""
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("not a list of texts")
    return tuple(map(clean, values))
