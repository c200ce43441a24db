"""Catalogues: products by number, in the memory or in a packed file that is read a product at a time."""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from agentbench_credit.envs.webshop.product import Product, from_line, to_line
from agentbench_credit.errors import EnvironmentContractError

CHECKED_WHOLE = 2**27
"""Bytes up to which a packed file is hashed when it is opened; a larger one is checked by its size."""
KEPT = 8192
"""Products of a packed file that are kept in the memory."""

_PRODUCTS, _ENDS, _META = "products.txt", "ends.npy", "meta.json"


@dataclass(frozen=True)
class Catalogue:
    """Products by number, and the hash that names them."""

    name: str
    """``"embedded"``, or the name of the official file."""
    sha256: str
    """Hash over all products in order."""
    size: int
    """Number of products."""
    characters: str
    """Characters of the products' texts that are not ASCII."""
    product: Callable[[int], Product]
    """Returns the product of a number below `size`."""

    def __iter__(self) -> Iterator[Product]:
        """Iterate over the products in order."""
        return map(self.product, range(self.size))


def catalogue_of(name: str, products: Iterable[Product]) -> Catalogue:
    """Return a catalogue in the memory.

    Args:
        name: What it is called.
        products: The products in their order.
    """
    rows = tuple(products)
    digest, characters = hashlib.sha256(), set[str]()
    for product in rows:
        line = to_line(product)
        digest.update(line)
        characters |= _beyond_ascii(line)
    return Catalogue(name, digest.hexdigest(), len(rows), "".join(sorted(characters)), rows.__getitem__)


def _beyond_ascii(line: bytes) -> set[str]:
    return set() if line.isascii() else {char for char in line.decode() if not char.isascii()}


def write_packed(folder: Path, products: Iterable[Product]) -> int:
    """Write products into a packed file, one after the other, so that they need not fit into the memory.

    Args:
        folder: A new folder; the file with the hash is written last.
        products: The products in their order.

    Returns:
        How many there were; a file without any cannot be read.
    """
    folder.mkdir(parents=True)
    digest, characters, ends, end = hashlib.sha256(), set[str](), [], 0
    with (folder / _PRODUCTS).open("xb") as stream:
        for product in products:
            line = to_line(product)
            digest.update(line)
            characters |= _beyond_ascii(line)
            end += stream.write(line)
            ends.append(end)
    np.save(folder / _ENDS, np.array(ends, np.int64))
    meta: dict[str, str | int] = {"sha256": digest.hexdigest(), "bytes": end, "products": len(ends)}
    meta |= {"characters": "".join(sorted(characters))}
    (folder / _META).write_text(json.dumps(meta), encoding="utf-8")
    return len(ends)


def read_packed(name: str, folder: Path) -> Catalogue:
    """Open a packed file.

    Args:
        name: What the catalogue is called.
        folder: What `write_packed` wrote.

    Returns:
        The catalogue; it keeps the last `KEPT` products in the memory, and the rest on the disk.

    Raises:
        EnvironmentContractError: The folder is missing, torn or damaged.
    """
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        sha256, size, characters = str(meta["sha256"]), int(meta["products"]), str(meta["characters"])
        ends = np.load(folder / _ENDS, allow_pickle=False)
        with (folder / _PRODUCTS).open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EnvironmentContractError(f"no packed catalogue ({error})", where=str(folder)) from error
    whole = len(data) == meta["bytes"] and ends.shape == (size,) and ends.dtype == np.int64 and size > 0
    if whole and len(data) <= CHECKED_WHOLE:
        whole = hashlib.sha256(data).hexdigest() == sha256
    if not whole or ends[-1] != len(data):
        raise EnvironmentContractError("the packed catalogue is damaged", where=str(folder), mend="delete it")

    @lru_cache(maxsize=KEPT)
    def product(number: int) -> Product:
        if not 0 <= number < size:
            raise IndexError(number)
        return from_line(data[ends[number - 1] if number else 0 : ends[number]])

    return Catalogue(name, sha256, size, characters, product)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Fill a folder so that no reader ever sees it half-filled.

    Args:
        path: The folder, which is not there yet; if another process makes it meanwhile, that one is kept.

    Yields:
        Another path beside it that the block makes and fills; it is renamed when the block ends without an exception.

    Raises:
        OSError: The disk is full or read-only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        try:
            temporary.rename(path)
        except OSError:
            if not path.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
