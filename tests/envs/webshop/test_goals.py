"""Goals: price ceilings by the official rule, goals of the official data, goals as task texts."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.envs.webshop import goals
from agentbench_credit.envs.webshop.generate import make_product
from agentbench_credit.envs.webshop.goals import Goal, draw_ceiling, from_data, official_goals, to_data


def drawn(price: float) -> set[float | None]:
    return {draw_ceiling(price, random.Random(seed)) for seed in range(200)}


@pytest.mark.parametrize(
    ("price", "ceilings"),
    [
        (0.0, {20.0, 30.0, 40.0}),
        (14.99, {30.0, 40.0, 50.0}),
        (20.0, {40.0, 50.0, 60.0}),  # a multiple of 10 is not above itself
        (955.0, {970.0, 980.0, 990.0}),
        (965.0, {980.0, 990.0}),
        (979.0, {990.0}),
        (980.0, {None}),  # one multiple is left, too few
        (5000.0, {None}),
    ],
)
def test_the_larger_of_two_of_the_next_four_multiples_of_ten(price: float, ceilings: set[float | None]) -> None:
    assert drawn(price) == ceilings


def test_the_larger_ones_are_drawn_more_often() -> None:
    counts = Counter(draw_ceiling(0.0, random.Random(seed)) for seed in range(3000))
    assert [round(counts[ceiling] / 500) for ceiling in (20.0, 30.0, 40.0)] == [1, 2, 3]


PRODUCTS = [
    make_product(number)._replace(options=(("size", ("8", "9")), ("color", ("red", "tan")))) for number in range(3)
]


def told(**changes: Any) -> dict[str, Any]:
    return {
        "instruction": "i want shoes.",
        "instruction_attributes": ["arch support"],
        "instruction_options": ["red"],
    } | changes


def make(rows: dict[str, list[dict[str, Any]]], *, human: bool = True) -> tuple[list[Goal], Counter[str]]:
    counts: Counter[str] = Counter()
    return official_goals(iter(PRODUCTS), rows, human=human, counts=counts), counts


def test_a_persons_instruction_becomes_a_goal_with_its_price_clause() -> None:
    [goal], counts = make({PRODUCTS[1].id: [told()]})
    assert goal.instruction == f"i want shoes, and price lower than {goal.ceiling:.2f} dollars"
    assert goal[2:4] == (("arch support",), ("red",))
    assert (goal.product, goal.query, goal.name) == (1, PRODUCTS[1].query, PRODUCTS[1].title)
    assert goal.ceiling in drawn(PRODUCTS[1].price)
    assert not counts
    [dotted], _ = make({PRODUCTS[1].id: [told(instruction="..i want shoes..")]})
    assert dotted.instruction == goal.instruction
    [mapped], _ = make({PRODUCTS[1].id: [told(instruction_options={"color": "red", "size": "8"})]})
    assert mapped.options == ("red", "8")


def test_each_instruction_of_a_product_has_a_ceiling_of_its_own() -> None:
    made, _ = make({PRODUCTS[1].id: [told()] * 40})
    assert {goal.ceiling for goal in made} == drawn(PRODUCTS[1].price)


def test_a_synthetic_goal_is_made_of_each_combination_of_options_by_name() -> None:
    made, counts = make({PRODUCTS[0].id: [told(instruction="shoes.")]}, human=False)
    assert {goal.options for goal in made} == {("red", "8"), ("red", "9"), ("tan", "8"), ("tan", "9")}
    assert len({goal.ceiling for goal in made}) == 1  # drawn once for the product
    [red8] = [goal for goal in made if goal.options == ("red", "8")]
    assert red8.instruction == f"shoes. with color: red, and size: 8, and price lower than {red8.ceiling:.2f} dollars"
    assert not counts


def test_too_many_combinations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "MAX_COMBINATIONS", 3)
    made, counts = make({PRODUCTS[0].id: [told()]}, human=False)
    assert (len(made), counts) == (3, {"product with too many option combinations": 1})
    monkeypatch.setattr(goals, "MAX_COMBINATIONS", 4)
    assert not make({PRODUCTS[0].id: [told()]}, human=False)[1]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (told(instruction_attributes=[]), "instruction without text or attributes"),
        (told(instruction=""), "instruction without text or attributes"),
        (told(instruction=None), "instruction without text or attributes"),
        (told(instruction=7), "bad instruction"),
        (told(instruction_attributes="support"), "bad instruction"),
        (told(instruction_options=[3]), "bad instruction"),
        ({}, "bad instruction"),
        ("text", "bad instruction"),
        (None, "bad instruction"),
    ],
)
def test_what_makes_no_goal_is_counted(row: Any, reason: str) -> None:
    made, counts = make({PRODUCTS[0].id: [row, told()]})
    assert (len(made), counts) == (1, {reason: 1})


def test_the_order_is_the_official_shuffle_and_nothing_depends_on_the_process() -> None:
    rows = {product.id: [told(instruction=f"{product.id} {place}") for place in range(4)] for product in PRODUCTS}
    made, _ = make(rows)
    unshuffled = [f"{product.id} {place}" for product in PRODUCTS for place in range(4)]
    random.Random(233).shuffle(unshuffled)
    assert [goal.instruction.split(",")[0] for goal in made] == unshuffled
    random.seed(1)
    assert make(rows)[0] == made


@given(
    st.tuples(st.integers(0, 99), st.text("ab \u203aé", max_size=9)),
    st.lists(st.text("ab"), max_size=3),
    st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_goals_survive_being_task_texts(start: tuple[int, str], texts: list[str], ceiling: float | None) -> None:
    goal = Goal(start[0], start[1].strip(), tuple(texts), tuple(texts), ceiling, "q", "n", "l \u203a m")
    assert from_data(to_data(goal)) == goal


def test_a_hostile_instruction_comes_out_on_one_line_and_can_be_encoded() -> None:
    data = json.dumps([0, "a\nb\x00\ud800c", ["x"], [], 10, "", "", ""])
    assert from_data(data).instruction == "a b c"


@pytest.mark.parametrize(
    "data",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '["0", "", [], [], null, "", "", ""]',
        '[0, "", [3], [], null, "", "", ""]',
        '[0, "", [], [], NaN, "", "", ""]',
        '[0, "", [], [], true, "", "", ""]',
        '[0, null, [], [], 1.0, "", "", ""]',
        '[0, "", null, [], 1.0, "", "", ""]',
        '[0, "", "ab", [], 1.0, "", "", ""]',
        '[0, "", [], {"a": "b"}, 1.0, "", "", ""]',
    ],
)
def test_what_is_no_goal_is_an_error(data: str) -> None:
    with pytest.raises((ValueError, TypeError, RecursionError)):
        from_data(data)
