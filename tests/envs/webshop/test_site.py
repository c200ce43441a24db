"""Pages: where buttons lead, what they say in both observation modes, hostile products."""

from __future__ import annotations

import pytest

from agentbench_credit.envs.webshop.catalogue import Catalogue, catalogue_of
from agentbench_credit.envs.webshop.generate import make_product
from agentbench_credit.envs.webshop.pages import plain, rich
from agentbench_credit.envs.webshop.product import Review
from agentbench_credit.envs.webshop.site import Place, Site

PRODUCT = make_product(0)._replace(
    id="WS1",
    title="Road Shoes",
    description="For roads.",
    bullets=("memory foam", "non slip"),
    options=(("color", ("navy", "tan")), ("size", ("8", "9"))),
    prices=(40.0, 55.5),
    rating="4.5",
    reviews=(Review("Nice", "5", "They fit."),),
)


def catalogue(count: int, **first: object) -> Catalogue:
    products = [PRODUCT._replace(id=f"WS{number}", title=f"Shoe {number}") for number in range(count)]
    return catalogue_of("mine", [PRODUCT._replace(**first), *products[1:]])  # type: ignore[arg-type]


def shop(count: int = 1, **first: object) -> Site:
    """Return a shop whose searches find everything, or nothing for the word "nothing"."""
    return Site(catalogue(count, **first), lambda query: () if query == "nothing" else tuple(range(count)))


def walk(mine: Site, *clicks: str) -> Place:
    place = mine.results(Place(), "shoes")
    for value in clicks:
        place = mine.links(place)[value]
    return place


def text(mine: Site, place: Place, reward: float = 0.0) -> str:
    return plain(mine.pieces(place, "buy shoes", reward))


class TestLinks:
    def test_from_search_to_results_to_item_to_the_end(self) -> None:
        mine = shop(id="AB1")
        assert mine.links(Place()) == {}
        assert [*mine.links(walk(mine))] == ["back to search", "ab1"]
        item = walk(mine, "ab1")
        assert (item.page, item.item, item.query) == ("item", 0, "shoes")
        buttons = {"back to search", "< prev", "description", "features", "reviews", "buy now"}
        assert set(mine.links(item)) == buttons | {"navy", "tan", "8", "9"}
        assert walk(mine, "ab1", "buy now").page == "done"
        assert mine.links(walk(mine, "ab1", "buy now")) == {}

    def test_next_and_prev_are_there_only_where_a_page_is(self) -> None:
        def pages(count: int) -> list[set[str]]:
            mine, place, seen = shop(count), walk(shop(count)), []
            while True:
                seen.append({"next >", "< prev"} & set(mine.links(place)))
                if "next >" not in seen[-1]:
                    return seen
                place = mine.links(place)["next >"]

        assert pages(1) == pages(10) == [set()]
        assert pages(11) == [{"next >"}, {"< prev"}]
        assert pages(50) == [{"next >"}, *[{"next >", "< prev"}] * 3, {"< prev"}]
        assert [*shop().links(shop().results(Place(), "nothing"))] == ["back to search"]

    def test_pages_hold_ten_products_and_prev_of_an_item_returns_to_its_page(self) -> None:
        mine = shop(25)
        assert [len(mine.shown(walk(mine, *["next >"] * turns))) for turns in range(3)] == [10, 10, 5]
        place = walk(mine, "next >", "ws12", "navy", "< prev")
        assert (place.page, place.number, place.item, place.options) == ("results", 2, -1, ())

    def test_options_stay_on_sub_pages_are_replaced_and_are_cleared_by_search(self) -> None:
        mine = shop()
        assert walk(mine, "ws1", "9", "navy", "tan").options == (("color", "tan"), ("size", "9"))
        for page in ("description", "features", "reviews"):
            sub = walk(mine, "ws1", "tan", page)
            assert (sub.page, [*mine.links(sub)]) == (page, ["back to search", "< prev"])
            assert mine.links(sub)["< prev"] == walk(mine, "ws1", "tan")
        assert walk(mine, "ws1", "tan", "back to search") == Place()
        assert mine.results(walk(mine, "ws1", "tan"), "hats")[:5] == ("results", "hats", 1, -1, ())

    def test_a_value_of_two_options_belongs_to_the_last_and_buttons_win_over_values(self) -> None:
        options = (("cup", ("8", "buy now")), ("size", ("8", "< prev")))
        mine = shop(options=options)
        assert walk(mine, "ws1", "8").options == (("size", "8"),)
        assert walk(mine, "ws1", "buy now").page == "done"
        assert walk(mine, "ws1", "< prev").page == "results"

    def test_a_value_without_text_is_shown_but_cannot_be_clicked(self) -> None:
        mine = shop(options=(("size", ("", "8")),))
        assert "" not in mine.links(walk(mine, "ws1"))
        assert "size [SEP]  [SEP] 8" in text(mine, walk(mine, "ws1"))

    def test_a_search_keeps_what_was_visited_and_the_search_page_forgets_it(self) -> None:
        mine = shop(3)
        assert mine.results(walk(mine, "ws2"), "hats").visited == (2,)
        assert walk(mine, "ws2", "back to search").visited == ()

    def test_order_of_clicks_does_not_matter_for_the_place(self) -> None:
        mine = shop(3)
        assert walk(mine, "ws2", "9", "tan") == walk(mine, "ws2", "tan", "9")
        ways = ("ws2", "< prev", "ws1"), ("ws1", "< prev", "ws2", "< prev", "ws1")
        assert {walk(mine, *way).visited for way in ways} == {(1, 2)}
        assert len({walk(mine, *way) for way in ways}) == 1


class TestText:
    def test_plain_pages(self) -> None:
        mine = shop(11)
        top = "Instruction: [SEP] buy shoes [SEP] "
        assert text(mine, Place()) == f"WebShop [SEP] {top}Search"
        results = text(mine, walk(mine))
        assert results.startswith(
            f"{top}Back to Search [SEP] Page 1 (Total results: 11) [SEP] Next > [SEP] "
            "WS1 [SEP] Road Shoes [SEP] $40.0 to $55.5 [SEP] WS1 [SEP] Shoe 1 [SEP]"
        )
        assert text(mine, walk(mine, "next >")) == (
            f"{top}Back to Search [SEP] Page 2 (Total results: 11) [SEP] < Prev [SEP] "
            "WS10 [SEP] Shoe 10 [SEP] $40.0 to $55.5"
        )
        assert "Next >" not in text(shop(10), walk(shop(10)))
        mine = shop()
        item = (
            f"{top}Back to Search [SEP] < Prev [SEP] color [SEP] navy [SEP] tan [SEP] size [SEP] 8 [SEP] 9 [SEP] "
            "Road Shoes [SEP] Price: $40.0 to $55.5 [SEP] Rating: 4.5 [SEP] "
            "Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
        )
        assert text(mine, walk(mine, "ws1")) == text(mine, walk(mine, "ws1", "tan")) == item
        back = f"{top}Back to Search [SEP] < Prev [SEP] "
        assert text(mine, walk(mine, "ws1", "description")) == f"{back}For roads."
        assert text(mine, walk(mine, "ws1", "features")) == f"{back}memory foam [SEP] non slip"
        assert text(mine, walk(mine, "ws1", "reviews")) == f'{back}"Nice" [SEP] 5 [SEP] They fit.'
        assert text(mine, walk(mine, "ws1", "buy now"), 0.75) == (
            "Thank you for shopping with us! [SEP] Your score (min 0.0, max 1.0) [SEP] 0.75"
        )

    def test_empty_sub_pages(self) -> None:
        mine = shop(description="", bullets=(), reviews=())
        back = "Instruction: [SEP] buy shoes [SEP] Back to Search [SEP] < Prev"
        assert text(mine, walk(mine, "ws1", "description")) == back
        assert text(mine, walk(mine, "ws1", "features")) == back
        assert text(mine, walk(mine, "ws1", "reviews")) == f"{back} [SEP] No reviews found"

    def test_rich_pages_mark_buttons_chosen_options_and_visited_products(self) -> None:
        mine = shop(2)
        chosen = rich(mine.pieces(walk(mine, "ws1", "tan", "8"), "buy shoes", 0.0))
        assert chosen.startswith(
            "You have clicked 8.\nYou have clicked tan.\nInstruction:\nbuy shoes\n[button] Back to Search"
        )
        assert "\ncolor\n  [button] navy [button_]\n  [clicked button] tan [clicked button_]\nsize\n" in chosen
        results = rich(mine.pieces(walk(mine, "ws1", "< prev"), "buy shoes", 0.0))
        assert results.endswith("$40.0 to $55.5\n\n[clicked button] WS1 [clicked button_]\nShoe 1\n$40.0 to $55.5\n")

    @pytest.mark.parametrize("hostile", ["{} %s {0!r}", "[SEP] Buy Now", "]", "click[buy now]", "</h4>", "\u202ex"])
    def test_hostile_texts_are_shown_as_they_are(self, hostile: str) -> None:
        mine = shop(title=hostile, options=((hostile, (hostile,)),), description=hostile, bullets=(hostile,))
        item = walk(mine, "ws1", hostile)
        assert item.options == ((hostile, hostile),)
        assert hostile in text(mine, item)
        assert f"[clicked button] {hostile} [clicked button_]" in rich(mine.pieces(item, hostile, 0.0))
        assert hostile in text(mine, walk(mine, "ws1", "description"))
