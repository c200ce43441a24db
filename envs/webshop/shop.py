"""Which shop a preset plays in: the made-up one or the official one, opened once per process, cached on the disk."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agentbench_credit.cache import cache_dir
from agentbench_credit.envs.webshop.catalogue import (
    Catalogue,
    catalogue_of,
    read_packed,
    whole_folder,
    write_packed,
)
from agentbench_credit.envs.webshop.generate import PRODUCTS, make_product
from agentbench_credit.envs.webshop.nouns import RULES, Tagger, official_tagger
from agentbench_credit.envs.webshop.official import data_folder, find_files, read_mapping, read_products
from agentbench_credit.envs.webshop.presets import Preset
from agentbench_credit.envs.webshop.product import Product
from agentbench_credit.envs.webshop.site import Site
from agentbench_credit.errors import EnvironmentContractError

if TYPE_CHECKING:
    from agentbench_credit.envs.webshop.goals import Goal
    from agentbench_credit.envs.webshop.reward import Score
    from agentbench_credit.envs.webshop.shopper import Shopper

VERSION = 1
"""Raised whenever the official files are read in another way."""

_FAULTS = ("bad", "price")


class Shop(NamedTuple):
    """Everything that environments of one preset share."""

    site: Site
    """Products, search, pages."""
    tagger: Tagger
    """Finds nouns for the reward."""
    shopper: Shopper
    """The expert."""
    score: Callable[[Product, dict[str, str], Goal, Tagger], Score]
    """The reward."""


def open_shop(preset: Preset) -> Shop:
    """Return the shop of a preset, the same object each time.

    Args:
        preset: The settings.

    Returns:
        The shop.

    Raises:
        EnvironmentContractError: tantivy or rapidfuzz is missing, or the files of ``$WEBSHOP_DATA`` are not right.
    """
    folder = official_folder(preset)
    return _open_shop(folder, files_key(folder) if folder else "", shop_folder(cache_dir() / "webshop"))


def official_folder(preset: Preset) -> Path | None:
    """Return the folder of the official data that a preset plays with, None for the made-up shop."""
    return None if preset.goals == "embedded" else data_folder()


def open_catalogue(folder: Path | None) -> Catalogue:
    """Return the products.

    Args:
        folder: Folder of the official data, None for the made-up shop.

    Returns:
        The catalogue; the official one is read once per machine and kept packed in the cache.

    Raises:
        EnvironmentContractError: An official file is missing or torn.
    """
    if folder is None:
        return _embedded()
    return _official(folder, files_key(folder), shop_folder(cache_dir() / "webshop"))


@cache
def _embedded() -> Catalogue:
    return catalogue_of("embedded", map(make_product, range(PRODUCTS)))


@cache
def _official(folder: Path, key: str, cached: Path) -> Catalogue:
    path = cached / f"catalogue-{key}"
    items, attributes, _ = find_files(folder)
    if path.exists():
        try:
            return read_packed(items.stem, path)
        except EnvironmentContractError as error:
            warnings.warn(f"{error}; it is read again", stacklevel=2)
            shutil.rmtree(path, ignore_errors=True)
    counts: Counter[str] = Counter()
    with whole_folder(path) as temporary:
        if not write_packed(temporary, read_products(items, read_mapping(attributes), counts)):
            what = f"holds no product that can be used ({', '.join(sorted(counts)) or 'no record'})"
            raise EnvironmentContractError(what, where=str(items))
        (temporary / "left-out.json").write_text(json.dumps(counts), encoding="utf-8")
    announce(counts, items)
    return read_packed(items.stem, path)


def announce(counts: Counter[str], path: Path) -> None:
    """Warn about what was wrong in an official file; what the official code leaves out too is no fault.

    Args:
        counts: How often, by reason.
        path: The file.
    """
    if faults := {what: count for what, count in counts.items() if count and what.startswith(_FAULTS)}:
        listed = ", ".join(f"{what} ({count})" for what, count in sorted(faults.items()))
        warnings.warn(f"{path}: {listed}", stacklevel=2)


def files_key(folder: Path) -> str:
    """Return a name for the official files as they are now, from their names, sizes and times of change."""
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in find_files(folder)]
    return hashlib.sha256(json.dumps([VERSION, stats]).encode()).hexdigest()[:24]


@cache
def _open_shop(folder: Path | None, key: str, cached: Path) -> Shop:  # noqa: ARG001 - files that changed are another shop
    try:
        from agentbench_credit.envs.webshop.reward import score
        from agentbench_credit.envs.webshop.search import open_search
        from agentbench_credit.envs.webshop.shopper import Shopper
    except ImportError as error:
        what = f"a library of the shop cannot be used ({error})"
        raise EnvironmentContractError(what, mend="pip install 'agentbench-credit[webshop]'") from error
    catalogue = open_catalogue(folder)
    site = Site(catalogue, open_search(catalogue, cached))
    # The made-up shop gives the same rewards everywhere, whether spaCy is installed or not.
    tagger = RULES if folder is None else official_tagger()
    return Shop(site, tagger, Shopper(site, tagger), score)


@cache
def shop_folder(folder: Path) -> Path:
    """Return the folder for catalogues and indexes: the one that is asked for, or a temporary one that is announced.

    Args:
        folder: Where they should be kept.

    Returns:
        A folder that can be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        warnings.warn(f"the shop's index cannot be cached and will be built again ({error})", stacklevel=2)
    temporary = tempfile.mkdtemp(prefix="agentbench-webshop-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)
