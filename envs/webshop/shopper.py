"""The expert: it knows the goal's product, finds it by a search of the instruction's words, and buys it."""

from __future__ import annotations

from functools import lru_cache

from agentbench_credit.envs.webshop.goals import Goal
from agentbench_credit.envs.webshop.nouns import Tagger
from agentbench_credit.envs.webshop.product import Product
from agentbench_credit.envs.webshop.reward import colour_of, score, similar
from agentbench_credit.envs.webshop.site import PER_PAGE, SUB_PAGES, Place, Site

LONGEST_QUERY = 500
"""Characters."""


class Shopper:
    """Plans purchases with reward 1.

    Args:
        site: The shop.
        tagger: Finds the nouns of names, for the reward.
    """

    def __init__(self, site: Site, tagger: Tagger) -> None:
        self._site, self._tagger = site, tagger
        self.purchase = lru_cache(maxsize=16384)(self._purchase)

    def plan(self, place: Place, goal: Goal) -> tuple[str, ...]:
        """Return actions that lead from a place to a purchase with reward 1.

        Args:
            place: Where the shopper is.
            goal: What to buy.

        Returns:
            The actions; none if the shopping is over, or if no such purchase is found.
        """
        purchase = self.purchase(goal)
        if purchase is None or place.page == "done":
            return ()
        item, values, query = purchase
        actions: list[str] = []

        def click(value: str) -> None:
            nonlocal place
            actions.append(f"click[{value}]")
            place = self._site.links(place)[value]

        if place.page in SUB_PAGES:
            click("< prev")
        if place.page == "item" and place.item != item:
            click("< prev")
        if place.page == "results" and item not in self._site.search(place.query):
            click("back to search")
        if place.page == "search":
            actions.append(f"search[{query}]")
            place = self._site.results(place, query)
        if place.page == "results":
            wanted = self._site.search(place.query).index(item) // PER_PAGE + 1
            while place.number != wanted:
                click("next >" if place.number < wanted else "< prev")
            click(self._site.catalogue.product(item).id.lower())
        for value in values:
            if self._site.links(place)[value].options != place.options:
                click(value)
        click("buy now")
        return tuple(actions)

    def _purchase(self, goal: Goal) -> tuple[int, tuple[str, ...], str] | None:
        """Return product, option values to click and a query that finds it; None if nothing gives reward 1."""
        own = self._site.catalogue.product(goal.product)
        for queries in (_told(goal), _named(own)):
            found = {query: self._site.search(query) for query in queries}
            others = dict.fromkeys(item for hits in found.values() for item in hits)
            for item in dict.fromkeys((goal.product, *others)):
                pages = {query: hits.index(item) // PER_PAGE for query, hits in found.items() if item in hits}
                values = self._values(item, goal) if pages else None
                if values is not None:
                    return item, values, min(pages, key=pages.__getitem__)
        return None

    def _values(self, item: int, goal: Goal) -> tuple[str, ...] | None:
        """Return the option values to click for reward 1, None if there are none."""
        product = self._site.catalogue.product(item)
        place, values = Place("item", item=item), []
        for wanted in goal.options:
            value = _closest(product, wanted)
            if value is None or value not in self._site.links(place):
                return None
            values.append(value)
            place = self._site.links(place)[value]
        if place.page != "item" or score(product, dict(place.options), goal, self._tagger).reward != 1:
            return None
        return tuple(values)


def _closest(product: Product, wanted: str) -> str | None:
    """Return the option value that is the wanted one, else the first that counts as it."""
    every = [value for _, values in product.options for value in values]
    if wanted in every:
        return wanted
    return next((value for value in every if similar(colour_of(value), colour_of(wanted))), None)


def _told(goal: Goal) -> tuple[str, ...]:
    """Return searches that say nothing but what the instruction says."""
    attributes, options = " ".join(goal.attributes), " ".join(goal.options)
    return (
        _query(f"{goal.query} {attributes}"),
        _query(f"{goal.query} {attributes} {options}"),
        _query(f"{attributes} {options}"),
        _query(goal.instruction),
    )


def _named(product: Product) -> tuple[str, ...]:
    """Return searches of one who knows the product."""
    return _query(product.title), _query(f"{product.title} {product.description}")


def _query(text: str) -> str:
    """Return a search that fits into an action."""
    return " ".join(text.lower().split())[:LONGEST_QUERY].strip()
