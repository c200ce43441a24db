"""The methods' pages: complete, and their examples give what they print."""

from __future__ import annotations

import doctest
from importlib.resources import files

import pytest

from agentbench_credit.credit import METHODS


def page(method: str) -> str:
    return (files("agentbench_credit.credit") / "pages" / f"{method}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", METHODS.names())
def test_worked_example(method: str) -> None:
    test = doctest.DocTestParser().get_doctest(page(method), {}, method, f"{method}.md", 0)
    assert len(test.examples) >= 3
    output: list[str] = []
    result = doctest.DocTestRunner().run(test, out=output.append)
    assert result.failed == 0, "".join(output)


@pytest.mark.parametrize("method", METHODS.names())
def test_every_parameter_is_listed_with_its_default(method: str) -> None:
    rows = [row.split(" | ") for row in page(method).splitlines() if row.startswith("| `")]
    listed = {cells[0].strip("| `"): cells[1].strip("`").replace('"', "'") for cells in rows}
    assert listed == {name: repr(default) for name, default in METHODS.get(method).params.items()}


@pytest.mark.parametrize("method", METHODS.names())
def test_evidence_paper_and_use_are_stated(method: str) -> None:
    text, declared = page(method), METHODS.get(method)
    assert text.startswith(f"# {method}\n")
    assert f"**Evidence:** {declared.evidence}." in text
    assert (f"arxiv.org/abs/{declared.paper}" in text) == bool(declared.paper)
    assert "**Use it**" in text
    assert "**Cost" in text
    assert "## Edge cases" in text
    assert ("reconstruction" in text) == declared.is_reconstruction
    assert all(f"`{signal}`" in text for signal in declared.signals_for({}))
