"""Speed of the WebShop environment: ``python -m agentbench_credit.envs.webshop.bench [--products 1000000]``."""

from __future__ import annotations

import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentbench_credit.command import parse, progress, run_command
from agentbench_credit.envs.webshop.catalogue import read_packed, write_packed
from agentbench_credit.envs.webshop.env import WebShopEnv
from agentbench_credit.envs.webshop.generate import PRODUCTS, make_product
from agentbench_credit.envs.webshop.pages import plain
from agentbench_credit.envs.webshop.product import Product
from agentbench_credit.envs.webshop.shop import open_catalogue
from agentbench_credit.envs.webshop.site import Place, Site

STEPS = 20_000
TASKS = 300
REPEATS = 3


@dataclass(frozen=True)
class ScaleConfig:
    """Measure the environment in the embedded shop, or with --products how the engine scales."""

    products: int = 0
    """Made-up products of the scale check, 0 for none."""


def bench() -> dict[str, float]:
    """Measure in the embedded shop; speeds are the best of `REPEATS`, so that a busy machine counts less.

    Returns:
        Random steps a second (resets included), steps a second of the expert's episodes, microseconds of a reset,
        milliseconds of a search that was not made before (median), of making the shop and of building its index.
    """
    env = WebShopEnv()  # says what is missing where tantivy is not installed
    from agentbench_credit.envs.webshop.search import build_index

    tasks = [task.id for task in env.panel.tasks[:TASKS]]

    def play() -> None:
        rng = random.Random(0)
        _, info = env.reset(options={"task": tasks[0]})
        for turn in range(STEPS):
            _, _, terminated, truncated, info = env.step(rng.choice(info["admissible_actions"]))
            if terminated or truncated:
                _, info = env.reset(options={"task": tasks[turn % len(tasks)]})

    def reset() -> None:
        for task in tasks:
            env.reset(options={"task": task})

    plans = {}
    for task in tasks:
        env.reset(options={"task": task})
        plans[task] = (env.reference() or "").split("\n")

    def follow() -> None:
        for task, plan in plans.items():
            env.reset(options={"task": task})
            for action in plan:
                env.step(action)

    steps = sum(map(len, plans.values()))
    catalogue = open_catalogue(None)
    with tempfile.TemporaryDirectory() as folder:
        indexing = _seconds(partial(build_index, catalogue, Path(folder, "index")))
    searches = [_seconds(partial(env.shop.site.search, query)) for query in _queries(TASKS, PRODUCTS)]
    return {
        "steps/s": STEPS / min(_seconds(play) for _ in range(REPEATS)),
        "expert's steps/s": steps / min(_seconds(follow) for _ in range(REPEATS)),
        "reset microseconds": 1e6 * min(_seconds(reset) for _ in range(REPEATS)) / len(tasks),
        "new search ms": 1e3 * statistics.median(searches),
        "make the products ms": 1e3 * _seconds(lambda: [make_product(number) for number in range(PRODUCTS)]),
        "build the index ms": 1e3 * indexing,
    }


def scale(products: int, folder: Path) -> dict[str, float]:
    """Measure the engine with many made-up products, none of which is kept in the memory.

    Args:
        products: How many.
        folder: An empty folder; takes about 2 kB a product.

    Returns:
        Seconds of making and packing them, of building the index and of opening both; milliseconds of a new search
        with its page (median, largest); the process's largest memory in MB, and that of the index and packed files.
    """
    from agentbench_credit.envs.webshop.search import open_search

    def made() -> None:
        with progress("make products", products) as bar:
            write_packed(folder / "packed", (_counted(number, bar.advance) for number in range(products)))

    making = _seconds(made)
    catalogue = read_packed("scale", folder / "packed")
    indexing = _seconds(lambda: open_search(catalogue, folder))
    opening = _seconds(lambda: open_search(read_packed("scale", folder / "packed"), folder))
    site = Site(catalogue, open_search(catalogue, folder))
    pages = [_seconds(partial(_page, site, query)) for query in _queries(TASKS, products)]
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "make and pack s": making,
        "index s": indexing,
        "open s": opening,
        "search page median ms": 1e3 * statistics.median(pages),
        "search page largest ms": 1e3 * max(pages),
        "largest memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "disk MB": disk / 2**20,
    }


def _counted(number: int, advance: Callable[[int], None]) -> Product:
    if number % 1000 == 999:
        advance(1000)
    return make_product(number)


def _page(site: Site, query: str) -> str:
    place = site.results(Place(), query)
    return plain(site.pieces(place, "", 0.0)) + "".join(site.links(place))


def _queries(count: int, products: int) -> list[str]:
    """Return searches as a shopper makes them: kind, two attributes, an option."""
    rng, queries = random.Random(1), []
    for _ in range(count):
        product = make_product(rng.randrange(products))
        words = (product.query, *rng.sample(product.attributes, 2), rng.choice(product.options[0][1]))
        queries.append(" ".join(words))
    return queries


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(argv: list[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: Arguments, None for those of the process.
    """
    config = parse(ScaleConfig, argv)
    if config.products:
        with tempfile.TemporaryDirectory() as folder:
            measured = scale(config.products, Path(folder))
    else:
        measured = bench()
    for name, value in measured.items():
        print(f"{name:>24}: {value:,.3f}")


if __name__ == "__main__":
    run_command(main)
