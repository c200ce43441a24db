"""Products as lines, made-up products, and packed files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbench_credit.envs.webshop import catalogue as catalogues
from agentbench_credit.envs.webshop.catalogue import catalogue_of, read_packed, whole_folder, write_packed
from agentbench_credit.envs.webshop.generate import make_product, shelves
from agentbench_credit.envs.webshop.product import Product, Review, clean, from_line, to_line
from agentbench_credit.errors import EnvironmentContractError

TEXT = st.text(max_size=6).map(clean)
PRODUCT = st.builds(
    Product,
    id=TEXT,
    title=TEXT,
    description=TEXT,
    bullets=st.lists(TEXT, max_size=2).map(tuple),
    attributes=st.lists(TEXT, max_size=2).map(tuple),
    query=TEXT,
    category=TEXT,
    product_category=TEXT,
    options=st.lists(st.tuples(TEXT, st.lists(TEXT, max_size=2).map(tuple)), max_size=2).map(tuple),
    prices=st.lists(st.floats(0, 1e6), max_size=2).map(tuple),
    price=st.floats(0, 1e6),
    rating=TEXT,
    reviews=st.lists(st.builds(Review, TEXT, TEXT, TEXT), max_size=2).map(tuple),
)


@given(PRODUCT)
def test_a_product_survives_being_a_line(product: Product) -> None:
    line = to_line(product)
    assert from_line(line) == product
    assert line.count(b"\n") == 1


@given(st.text())
def test_cleaned_texts_hold_no_separator_and_can_be_encoded(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert not any(char < " " for char in cleaned)
    assert clean(cleaned) == cleaned
    assert "".join(cleaned.split()) == "".join(clean(" ".join(text.split())).split())  # only spaces came and went


def test_surrogates_and_control_characters_become_spaces() -> None:
    assert clean("\x00a\ud800\x1fb\u2028 ") == "a b"


def test_made_up_products_differ_and_cover_every_category() -> None:
    products = [make_product(number) for number in range(1600)]
    for field in ("id", "title"):
        assert len({getattr(product, field) for product in products}) == 1600
    assert len({product.query for product in products}) == len(shelves()) >= 25
    assert {len(product.prices) for product in products} == {0, 1, 2}
    assert all(product.prices[0] <= product.price <= product.prices[-1] for product in products if product.prices)
    assert all(len(values) >= 2 for product in products for _, values in product.options)
    assert any(product.reviews for product in products)
    assert any(not product.reviews for product in products)
    # A goal's attribute is always found on the page Features, where a shopper can read it.
    assert all(any(each in line for line in product.bullets) for product in products for each in product.attributes)


def test_a_packed_file_gives_the_same_products_and_hash(tmp_path: Path) -> None:
    products = [make_product(number)._replace(rating="\u20ac") for number in range(9)]
    write_packed(tmp_path / "packed", iter(products))
    packed, plain = read_packed("a", tmp_path / "packed"), catalogue_of("a", products)
    assert [*packed] == [*plain] == products
    assert (packed.sha256, packed.size, packed.characters) == (plain.sha256, 9, "\u203a\u20ac")
    assert plain.characters == packed.characters
    for number in (-1, 9):
        with pytest.raises(IndexError):
            packed.product(number)


def test_a_folder_is_there_as_a_whole_or_not_at_all_and_the_first_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "folder"

    def fill(content: str, error: BaseException | None = None) -> None:
        with whole_folder(path) as temporary:
            temporary.mkdir()
            (temporary / "file").write_text(content)
            if error:
                raise error

    with pytest.raises(KeyboardInterrupt):
        fill("interrupted", KeyboardInterrupt())
    assert not [*tmp_path.iterdir()]
    fill("one")
    fill("two")
    assert (path / "file").read_text() == "one"
    assert [*tmp_path.iterdir()] == [path]


def test_a_large_packed_file_is_not_hashed_but_its_size_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogues, "CHECKED_WHOLE", 0)
    write_packed(tmp_path / "packed", map(make_product, range(3)))
    assert read_packed("a", tmp_path / "packed").size == 3
    with (tmp_path / "packed" / "products.txt").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(EnvironmentContractError, match="damaged"):
        read_packed("a", tmp_path / "packed")


def test_another_process_with_another_hash_seed_makes_the_same_shop() -> None:
    code = (
        "from agentbench_credit.envs.webshop.panels import load_panel\n"
        "from agentbench_credit.envs.webshop.shop import open_catalogue\n"
        "print(open_catalogue(None).sha256, load_panel('embedded', 'test').sha256)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
