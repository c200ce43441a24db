"""The shop's pages: what stands on them and where their buttons lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from agentbench_credit.envs.webshop.catalogue import Catalogue

PER_PAGE = 10
"""Products on a page of results."""

_BACK, _PREV, _NEXT, _BUY = "Back to Search", "< Prev", "Next >", "Buy Now"

Page = Literal["search", "results", "item", "description", "features", "reviews", "done"]
SUB_PAGES: tuple[Page, ...] = ("description", "features", "reviews")

Kind = Literal["text", "button", "option", "chosen option", "product", "visited product"]

Search = Callable[[str], tuple[int, ...]]
"""Returns the numbers of the products that a query finds, the best first; answers any text."""


class Place(NamedTuple):
    """Where a shopper is, and what is chosen: the whole state of the shop."""

    page: Page = "search"
    """The page that is shown."""
    query: str = ""
    """The last search, empty on the search page."""
    number: int = 1
    """Page of the results, from 1."""
    item: int = -1
    """Number of the product that is looked at, -1 for none."""
    options: tuple[tuple[str, str], ...] = ()
    """Name and value of the chosen options, in the order of the item page."""
    visited: tuple[int, ...] = ()
    """Products looked at since the search page, in ascending order; rich text marks them."""


class Piece(NamedTuple):
    """A text on a page."""

    kind: Kind
    """What it is."""
    text: str
    """What it says."""


class Site:
    """The pages of a catalogue.

    Args:
        catalogue: The products.
        search: Finds them.
    """

    def __init__(self, catalogue: Catalogue, search: Search) -> None:
        self.catalogue, self.search = catalogue, search

    def results(self, place: Place, query: str) -> Place:
        """Return the place that a search leads to, which the official shop accepts on every page but the last."""
        return Place("results", query, visited=place.visited)

    def shown(self, place: Place) -> tuple[int, ...]:
        """Return the numbers of the products on a page of results."""
        start = (place.number - 1) * PER_PAGE
        return self.search(place.query)[start : start + PER_PAGE]

    def links(self, place: Place) -> dict[str, Place]:
        """Return everything that can be clicked, lower case, in the order of the page, and where it leads.

        Where two options of a product have a value in common, its button belongs to the last of them, as in the
        official code; a button of the page wins over an option of the same name.
        """
        if place.page in ("search", "done"):
            return {}
        links = {_BACK.lower(): Place()}
        if place.page == "results":
            if place.number > 1:
                links[_PREV.lower()] = place._replace(number=place.number - 1)
            if place.number * PER_PAGE < len(self.search(place.query)):
                links[_NEXT.lower()] = place._replace(number=place.number + 1)
            for item in self.shown(place):
                visited = tuple(sorted({*place.visited, item}))
                links[self.catalogue.product(item).id.lower()] = place._replace(page="item", item=item, visited=visited)
        elif place.page == "item":
            links[_PREV.lower()] = place._replace(page="results", item=-1, options=())
            options = self._option_links(place)
            for page in SUB_PAGES:
                links[page] = place._replace(page=page)
            links[_BUY.lower()] = place._replace(page="done")
            links = options | links
        else:
            links[_PREV.lower()] = place._replace(page="item")
        return links

    def _option_links(self, place: Place) -> dict[str, Place]:
        chosen = dict(place.options)
        options = self.catalogue.product(place.item).options
        links = {}
        for name, values in options:
            for value in filter(None, values):  # there is no way to click on nothing
                picked = chosen | {name: value}
                in_order = tuple((each, picked[each]) for each, _ in options if each in picked)
                links[value] = place._replace(options=in_order)
        return links

    def pieces(self, place: Place, instruction: str, reward: float) -> Iterator[Piece]:
        """Yield the texts of a page.

        Args:
            place: Where the shopper is.
            instruction: What is asked for; on every page but the last.
            reward: What the last page says.

        Yields:
            The texts in their order.
        """
        if place.page == "done":
            for text in ("Thank you for shopping with us!", "Your score (min 0.0, max 1.0)", str(reward)):
                yield Piece("text", text)
            return
        if place.page == "search":
            yield Piece("text", "WebShop")
        yield Piece("text", "Instruction:")
        yield Piece("text", instruction)
        if place.page == "search":
            yield Piece("button", "Search")
            return
        yield Piece("button", _BACK)
        yield from self._results(place) if place.page == "results" else self._item(place)

    def _results(self, place: Place) -> Iterator[Piece]:
        total = len(self.search(place.query))
        yield Piece("text", f"Page {place.number} (Total results: {total})")
        if place.number > 1:
            yield Piece("button", _PREV)
        if place.number * PER_PAGE < total:
            yield Piece("button", _NEXT)
        for item in self.shown(place):
            product = self.catalogue.product(item)
            yield Piece("visited product" if item in place.visited else "product", product.id)
            yield Piece("text", product.title)
            yield Piece("text", product.price_tag)

    def _item(self, place: Place) -> Iterator[Piece]:
        product = self.catalogue.product(place.item)
        yield Piece("button", _PREV)
        if place.page == "description":
            texts = [product.description]
        elif place.page == "features":
            texts = list(product.bullets)
        elif place.page == "reviews":
            texts = [text for review in product.reviews for text in (f'"{review.title}"', review.stars, review.body)]
            texts = texts or ["No reviews found"]
        else:
            for name, values in product.options:
                yield Piece("text", name)
                for value in values:
                    yield Piece("chosen option" if (name, value) in place.options else "option", value)
            texts = [product.title, f"Price: {product.price_tag}", f"Rating: {product.rating}"]
        for text in texts:
            if text:
                yield Piece("text", text)
        if place.page == "item":
            for text in ("Description", "Features", "Reviews", _BUY):
                yield Piece("button", text)
