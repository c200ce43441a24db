"""Benchmarks: an environment, a preset and a split under one name; suites are lists of benchmarks."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentbench_credit.errors import ConfigError
from agentbench_credit.registry import Registry

if TYPE_CHECKING:
    from agentbench_credit.policy.prompts import PromptMode


@dataclass(frozen=True)
class Benchmark:
    """One column of results: success on every task of one panel."""

    name: str
    """Registry name."""
    environment: str
    """Name in the environment registry."""
    preset: str
    """The environment's preset."""
    split: str = "test"
    """Split of the panel."""
    repeats: int = 1
    """Rollouts of each task."""
    prompt_mode: PromptMode = "turn"
    """How an untrained policy is prompted; a checkpoint is prompted as it was trained where this is ``"turn"``, and
    shown the whole conversation where the task is one."""
    max_new_tokens: int = 512
    """Longest response of one turn by default; never more than half of the policy's context."""
    parallel: int = 128
    """Most episodes under way at once: fewer where each has processes of its own."""


def _maths(name: str, preset: str, repeats: int) -> Benchmark:
    return Benchmark(name, "maths", preset, repeats=repeats, max_new_tokens=32768)


def _tools(name: str, preset: str) -> Benchmark:
    return Benchmark(name, "tools", preset, prompt_mode="conversation", max_new_tokens=4096, parallel=16)


_ALL = (
    Benchmark("sokoban", "sokoban", "embedded"),
    Benchmark("sokoban_6x6", "sokoban", "6x6-1box"),
    Benchmark("alfworld_seen", "alfworld", "standard", split="validation"),
    Benchmark("alfworld_unseen", "alfworld", "standard"),
    Benchmark("webshop", "webshop", "webshop"),
    _maths("aime24", "aime24", 32),
    _maths("aime25", "aime25", 32),
    _maths("amc23", "amc23", 32),
    _maths("math500", "math500", 4),
    _maths("gsm8k", "gsm8k", 1),
    _maths("minerva", "minerva", 1),
    _maths("olympiadbench", "olympiadbench", 1),
    _tools("bfcl_multi_turn", "bfcl-multi-turn"),
    _tools("bfcl_single_turn", "bfcl-single-turn"),
    _tools("tau2_retail", "tau2-retail"),
    _tools("tau2_airline", "tau2-airline"),
    _tools("tooltalk", "tooltalk"),
)

BENCHMARKS: Registry[Benchmark] = Registry(
    "benchmark",
    "agentbench_credit.benchmarks",
    base=Benchmark,
    builtin=lambda: {each.name: each for each in _ALL},
)

SUITES = {
    "embedded": ("sokoban",),
    "agentic": ("alfworld_seen", "alfworld_unseen", "webshop", "sokoban_6x6"),
    "math_tool": (
        *("aime24", "aime25", "amc23", "math500"),
        *("bfcl_multi_turn", "tau2_retail", "tau2_airline", "tooltalk"),
    ),
}
"""Benchmarks of each suite, in the order of the table."""


def find_benchmarks(suite: str) -> tuple[Benchmark, ...]:
    """Return the benchmarks of a suite, or the one benchmark of that name.

    Raises:
        ConfigError: There is neither.
    """
    if suite in SUITES:
        return tuple(map(BENCHMARKS.get, SUITES[suite]))
    if suite in BENCHMARKS.names():
        return (BENCHMARKS.get(suite),)
    known = [*SUITES, *BENCHMARKS.names()]
    near = difflib.get_close_matches(suite, known, n=2)
    mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    raise ConfigError(f"no suite or benchmark {suite!r}", where="--suite", mend=mend)
