"""The README's examples are code that runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from agentbench_credit.credit import METHODS

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run_one_after_the_other() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    own = blocks.pop()  # it needs a file of its own name
    assert own in Path(__file__).with_name("toy_env.py").read_text("utf-8")
    assert sum(bool(line.strip()) for line in own.splitlines()) <= 40
    register = "METHODS.register('last_turn', last_turn)"
    check = "assert METHODS.get('last_turn')(batch).values[1] == METHODS.get('grpo')(batch).values[0]"
    code = "\n".join([*blocks, register, check, "assert observation.count('#') > 10"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[ 0.7071")


def test_every_method_is_listed_with_its_evidence() -> None:
    words = {"code": "released code", "paper": "paper", "abstract": "abstract only: **a reconstruction**"}
    rows = [row.strip("| ").split(" | ") for row in README.read_text("utf-8").splitlines() if "credit/pages/" in row]
    listed = {row[0].split("`")[1]: (row[-2], row[-1]) for row in rows if row[0].startswith("[`")}
    methods = [METHODS.get(name) for name in METHODS.names()]
    assert listed == {method.name: (method.paper or "—", words[method.evidence]) for method in methods}
