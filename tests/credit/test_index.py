"""The index of the pages says what the methods say of themselves."""

from __future__ import annotations

from importlib.resources import files

from agentbench_credit.credit import METHODS


def test_the_index_lists_every_method_with_its_use() -> None:
    text = (files("agentbench_credit.credit") / "pages" / "index.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| ["]
    listed = {row[0]: row[1:] for row in rows}
    expected = {}
    for name in METHODS.names():
        method = METHODS.get(name)
        evidence = method.evidence + (": a reconstruction" if method.is_reconstruction else "")
        expected[f"[`{name}`]({name}.md)"] = [method.summary, evidence]
    assert listed == expected
