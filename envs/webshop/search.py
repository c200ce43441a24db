"""Search: BM25 over a catalogue, from an index that is built once and kept in the cache."""

from __future__ import annotations

import shutil
import warnings
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import tantivy

from agentbench_credit.command import progress
from agentbench_credit.envs.webshop.catalogue import Catalogue, whole_folder
from agentbench_credit.envs.webshop.product import Product
from agentbench_credit.envs.webshop.site import Search

HITS = 50
"""Most products that a search finds."""
SPARE_HITS = 30
"""Further hits that are looked at, so that equal scores are ordered by the products' numbers."""
KEPT_QUERIES = 16384
"""Queries whose hits are kept in the memory."""
HEAP = 2**28
"""Bytes that the index's only writer may fill; one writer, so that the same index comes out everywhere."""

_VERSION = 1
_ANALYZER = "english"


def searchable(product: Product) -> str:
    """Return what a search looks at: title, description, first bullet, options."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    return " ".join((product.title, product.description, *product.bullets[:1], options)).lower()


def open_search(catalogue: Catalogue, folder: Path) -> Search:
    """Open the index of a catalogue, building it if it is not there, damaged, or of another catalogue.

    Args:
        catalogue: The products.
        folder: Where indexes are kept; tantivy's version, which decides how texts become words, and the catalogue's
            hash are part of the index's name.

    Returns:
        The search; it answers any text.
    """
    path = folder / f"index-{_VERSION}-{version('tantivy')}-{catalogue.sha256[:24]}"
    if path.exists():
        try:
            return _search(_opened(path, catalogue.size))
        except (OSError, ValueError) as error:
            warnings.warn(f"the search index {path} is damaged and is built again ({error})", stacklevel=2)
            shutil.rmtree(path, ignore_errors=True)
    with whole_folder(path) as temporary:
        build_index(catalogue, temporary)
    return _search(_opened(path, catalogue.size))


def build_index(catalogue: Catalogue, folder: Path) -> None:
    """Write the index of a catalogue.

    Args:
        catalogue: The products.
        folder: A new folder.
    """
    folder.mkdir(parents=True)
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", stored=False, tokenizer_name=_ANALYZER, index_option="freq")
    schema.add_unsigned_field("number", fast=True)
    index = tantivy.Index(schema.build(), path=str(folder))
    index.register_tokenizer(_ANALYZER, _analyzer())
    writer = index.writer(heap_size=HEAP, num_threads=1)
    with progress(f"index {catalogue.name}", catalogue.size) as bar:
        for number, product in enumerate(catalogue):
            document = tantivy.Document()
            document.add_text("text", searchable(product))
            document.add_unsigned("number", number)
            writer.add_document(document)
            if number % 1000 == 999:
                bar.advance(1000)
        writer.commit()
        writer.wait_merging_threads()


def terms_of(query: str) -> str:
    """Return a query as words only, lower case: nothing in it is syntax of the query language."""
    return " ".join("".join(char if char.isalnum() else " " for char in query.lower()).split())


def _analyzer() -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.remove_long(40))
    builder = builder.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.stopword("english"))
    return builder.filter(tantivy.Filter.stemmer("english")).build()


def _opened(path: Path, size: int) -> tantivy.Index:
    index = tantivy.Index.open(str(path))
    index.config_reader(reload_policy="manual")
    index.register_tokenizer(_ANALYZER, _analyzer())
    index.reload()
    if (found := index.searcher().num_docs) != size:
        raise ValueError(f"it holds {found} of {size} products")
    return index


def _search(index: tantivy.Index) -> Search:
    searcher, analyzer = index.searcher(), _analyzer()

    @lru_cache(maxsize=KEPT_QUERIES)
    def find(terms: str) -> tuple[int, ...]:
        if not analyzer.analyze(terms):
            return ()  # of stop words alone, the parser would make a query that finds every product
        parsed, _ = index.parse_query_lenient(terms, ["text"])
        hits = searcher.search(parsed, HITS + SPARE_HITS, count=False).hits
        numbers = searcher.fast_field_values("number", [address for _, address in hits])
        ranked = sorted((-round(score, 4), int(number or 0)) for (score, _), number in zip(hits, numbers, strict=True))
        return tuple(number for _, number in ranked[:HITS])

    return lambda query: find(terms_of(query))
